"""One command a module: it parses, calls one function, prints.

Imports everything.
"""
