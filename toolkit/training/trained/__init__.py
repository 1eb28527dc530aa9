"""Models on disk, and as a search sees them.

Imports ``training.members`` and ``training.evaluate``.
"""
