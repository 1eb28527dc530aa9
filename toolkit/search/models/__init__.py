"""Models that a run trains while it searches.

Imports ``search.moves`` and the modules directly in ``search``.
"""
