"""One module per command (or few): it parses options, calls one function, and prints.

These modules may import everything.
"""
