"""Float64 oracles, plain and readable: one file an op, one row at a time. Plain arrays in, plain arrays out.

Nothing here knows a plan, a checkpoint or a device, and nothing is fast. Every other kernel is held against these.
"""
