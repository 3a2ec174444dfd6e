"""Servers that somebody else may run, as a client sees them."""
