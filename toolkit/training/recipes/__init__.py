"""What to train, as a file says it.

Imports the ground alone.
"""
