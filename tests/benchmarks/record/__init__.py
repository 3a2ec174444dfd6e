"""A full record, and what streams ask of it."""
