"""Loop nests of programs.

Imports ``features.task`` and ``logs``.
"""
