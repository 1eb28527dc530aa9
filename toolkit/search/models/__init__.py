"""Models that a run trains while it searches.

Imports the ground of ``search``.
"""
