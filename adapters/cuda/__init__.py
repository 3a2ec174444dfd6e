"""The CUDA backend: blocks over pages and rings on one NVIDIA GPU, a captured graph for each row count."""
