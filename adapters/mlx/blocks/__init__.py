"""One file per op of a plan: each takes rows and a context, and leaves its state to `keep`."""
