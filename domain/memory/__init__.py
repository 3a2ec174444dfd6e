"""What fits: budgets, the bytes that weights and lanes take, windows, admission and the gate before each round."""
