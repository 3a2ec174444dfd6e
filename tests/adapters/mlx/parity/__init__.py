"""Parity with mlx-lm and transformers in float32, live where they are installed and against kept logits everywhere."""
