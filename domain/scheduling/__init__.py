"""Queue order and turns."""
