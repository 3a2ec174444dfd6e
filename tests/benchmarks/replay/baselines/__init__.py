"""Ways to draft from earlier text that are known from their descriptions, each written here from its description."""
