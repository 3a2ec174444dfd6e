"""Metal kernels on the emulator: values against float64, and every row's bits against that row alone."""
