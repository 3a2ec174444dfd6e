"""What draft sources and acceptance rules promise."""
