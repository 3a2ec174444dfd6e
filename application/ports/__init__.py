"""What the application asks of the world: small protocols over plain values."""
