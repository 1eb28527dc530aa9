"""Opens, selects from, and queries a dataset.

Imports the ground of ``datasets``.
"""
