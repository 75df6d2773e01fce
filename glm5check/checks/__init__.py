"""One module a concern: pure functions, records in, findings out. No I/O, no waiting, no plotting."""
