"""Row-exact arithmetic for CPUs in numpy: a row's bits never depend on the rows beside it."""
