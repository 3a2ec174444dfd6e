"""What may end a reply early or force its tokens, decided token by token."""
