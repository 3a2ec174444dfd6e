"""`python -m tensorfold` is the console script."""

from tensorfold.entrypoints.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
