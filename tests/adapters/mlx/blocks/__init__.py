"""One op at a time, over both devices of rows."""
