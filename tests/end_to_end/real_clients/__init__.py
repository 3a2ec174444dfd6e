"""Client libraries that people use, as they are published, against a served model."""
