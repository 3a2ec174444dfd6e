"""Pure decisions: standard library and numpy only. No I/O, clocks, threads, environment or devices."""
