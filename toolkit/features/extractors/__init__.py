"""Feature extractors, one per module.

Imports every other folder of ``features``.
"""
