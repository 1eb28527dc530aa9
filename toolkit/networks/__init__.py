"""Whole networks: from a model file to tasks, a compiled library, and its confirmation.

This package builds on ``live``. Only the command line imports it.
"""
