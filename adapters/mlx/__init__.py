"""The MLX backend: plans become running decoders on a Mac's GPU or on a CPU."""
