"""Pieces of work, in any process.

Imports ``replay.record`` and ``replay.statistics``.
"""
