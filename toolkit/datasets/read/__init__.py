"""Open, select from, query and check a dataset.

Imports the base modules of ``datasets``.
"""
