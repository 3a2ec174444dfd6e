"""The oracle: a float64 decoder driven by any family's plan, and its agreement with other libraries."""
