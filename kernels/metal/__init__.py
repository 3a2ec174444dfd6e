"""Rows on a Mac's GPU: kernels called through `mx.fast.metal_kernel`, one file each.

A kernel takes and gives MLX arrays and knows no request, family or checkpoint. The bits of a row's result depend on
that row, the weights and their shapes alone: sums are cut by shape, never by the number of rows. None of this has run
on a Mac yet; it runs on an emulator in the tests. Traps and reasons are in docs/recipes/metal.md.
"""
