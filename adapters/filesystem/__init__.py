"""Checkpoints on disk, read headers first."""
