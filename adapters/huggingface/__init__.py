"""A hub of checkpoints behind the interface that huggingface_hub speaks, in that library's cache."""
