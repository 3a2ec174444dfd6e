"""Falcon resources, one file per route family."""
