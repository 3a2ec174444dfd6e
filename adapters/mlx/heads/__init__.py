"""Draft heads of the MLX backend: they read kept rows and propose, and no bit of a reply depends on them."""
