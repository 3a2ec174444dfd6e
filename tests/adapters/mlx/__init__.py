"""The MLX backend on tiny seeded checkpoints: parity, exactness, loading, checks."""
