"""Metrics, intervals and ceilings.

Imports ``training.members`` and ``training.table``.
"""
