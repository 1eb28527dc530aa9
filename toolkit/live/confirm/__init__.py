"""Is it faster, and would a sceptic believe it?

Imports ``live.tune`` and what that imports.
"""
