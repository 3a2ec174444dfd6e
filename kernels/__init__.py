"""Tensors in, tensors out; knows no request and no family."""
