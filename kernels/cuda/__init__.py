"""Kernels in CUDA C++, compiled where they run. Tensors are device addresses here, so no framework is imported."""
