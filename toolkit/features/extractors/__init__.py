"""One extractor of features a module.

Imports every other room of ``features``.
"""
