"""One strategy a module.

Imports ``search.moves`` and ``search.models``.
"""
