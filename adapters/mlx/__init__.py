"""The MLX backend: loads a plan's tensors and runs its rows."""
