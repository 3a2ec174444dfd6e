"""Weights that a Python package carries."""
