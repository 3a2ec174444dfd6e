"""Releases of the product: the hosting site's API, this copy's installation, and what is remembered about both."""
