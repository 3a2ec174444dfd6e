"""What tokenizers, chat templates and grammars promise."""
