"""Tokenizers and chat templates of a checkpoint."""
