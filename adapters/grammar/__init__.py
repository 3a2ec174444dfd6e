"""Grammars for replies, compiled by llguidance for one checkpoint's tokenizer."""
