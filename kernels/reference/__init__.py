"""Float64 oracles, plain and readable."""
