"""A task's record as space and oracle, with its noise.

Imports ``search``, ``training``, ``datasets``.
"""
