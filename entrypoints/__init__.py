"""A command line or an HTTP request becomes one call of the application."""
