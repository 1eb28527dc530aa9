"""The confirmation: is a program really faster than the incumbent?

Imports ``live.tune`` and the rooms that it imports.
"""
