"""`tensorfold update`: look for a newer release, install it, and say what is new."""

from __future__ import annotations

import argparse
import os

from tensorfold.application.ports.checkpoints import RefusedError


def fill(parser: argparse.ArgumentParser) -> None:
    """The command's flags and its function."""
    parser.set_defaults(run=update)
    parser.add_argument("--check", action="store_true", help="only say whether there is a newer release")
    parser.add_argument("--force", action="store_true", help="install the newest release even when it is installed")


def update(flags: argparse.Namespace) -> int:
    """Run the command; 0, or the exit code of pip or git where one refused. Raises RefusedError."""
    # Here, not above: the parser takes this module's flags for every command.
    from tensorfold.application.updating import Updating
    from tensorfold.entrypoints.cli.lines import put, warn
    from tensorfold.entrypoints.cli.release_notices import project_address
    from tensorfold.entrypoints.container import Container
    from tensorfold.entrypoints.settings import update_settings

    if flags.check and flags.force:
        raise RefusedError("--check only looks and --force installs; give one of them.")
    settings = update_settings(flags, os.environ)
    container = Container(cache=settings.cache)
    installation = container.installation()
    if installation.facts().address is None:
        raise RefusedError("This copy of tensorfold was never installed, so no installer can renew it; use git pull.")
    address = project_address(settings, installation)
    if address is None:
        raise RefusedError("The package's metadata names no Repository of the form https://HOST/OWNER/NAME.")
    run = Updating(installation, container.release_feed(address), container.update_memory(), address, put, warn)
    return run.check() if flags.check else run.update(force=flags.force)
