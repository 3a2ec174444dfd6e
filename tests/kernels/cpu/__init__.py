"""The CPU kernels: rows equal alone and in company, and right against float64."""
