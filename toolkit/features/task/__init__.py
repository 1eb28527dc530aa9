"""What a task computes, and on what hardware.

Imports the ground of ``features``.
"""
