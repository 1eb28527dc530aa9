"""Rows, labels and folds.

Imports ``training.recipes`` and ``features``.
"""
