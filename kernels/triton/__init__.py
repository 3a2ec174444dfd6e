"""Kernels in Triton: what is between the products. A program works on one row (or one state), so rows never mix."""
