"""Training tables: rows, labels, neighbours and core counts."""
