"""How a program is built and read, and by whom.

Imports the ground alone.
"""
