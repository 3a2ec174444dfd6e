"""Kills and power cuts for the record: a simulated disk, what it could leave behind, and what is checked of it."""
