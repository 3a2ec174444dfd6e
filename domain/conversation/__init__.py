"""Text of a reply, made from token bytes; messages and their dialects."""
