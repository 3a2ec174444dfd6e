"""The float64 oracles themselves."""
