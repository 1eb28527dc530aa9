"""Rows, labels and folds."""
