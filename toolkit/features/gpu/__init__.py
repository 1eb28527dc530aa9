"""What a GPU makes of a loop nest.

Imports ``features.loops`` and ``features.task``.
"""
