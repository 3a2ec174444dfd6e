"""The clock and other services of the machine."""
