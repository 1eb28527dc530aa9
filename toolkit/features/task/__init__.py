"""What a task computes, and on what hardware.

Imports the modules directly in ``features``.
"""
