"""Search strategies; those of one kind share a module.

Imports ``search.moves`` and ``search.models``.
"""
