"""One folder per thing outside; adapters never call each other."""
