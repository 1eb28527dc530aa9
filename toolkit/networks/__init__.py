"""Whole networks: from a model file to tasks, a compiled library, and its confirmation.

Stands on ``live``, and is imported by the command line alone.
"""
