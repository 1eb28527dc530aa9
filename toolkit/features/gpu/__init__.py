"""GPU features of a loop nest.

Imports ``features.loops`` and ``features.task``.
"""
