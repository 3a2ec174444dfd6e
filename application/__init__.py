"""Use cases and ports. Imports the domain only and knows no device."""
