"""Ingest: accounts, parts, commits.

Imports ``datasets.read`` and ``logs``.
"""
