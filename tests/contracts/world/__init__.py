"""What the machine, its stores and its services promise."""
