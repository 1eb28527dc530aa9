"""Ingest and merge: writes a dataset.

Imports ``datasets.read`` and ``logs``.
"""
