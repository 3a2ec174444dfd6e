"""Model families as data: plans, tensor maps, storage formats and state."""
