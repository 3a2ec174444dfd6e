"""Draft heads of the CUDA backend: they read kept rows and propose, and no bit of a reply depends on them."""
