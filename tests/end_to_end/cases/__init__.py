"""Cases that people met in servers of this kind, held against this one: a table, the tests it names, and their run."""
