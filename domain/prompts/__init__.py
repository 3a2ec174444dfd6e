"""Which spans a prompt is absorbed in."""
