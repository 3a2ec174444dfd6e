"""One file for each op: rows of a round, and spans of a prompt."""
