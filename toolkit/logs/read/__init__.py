"""Lines to rows, in as many processes as one likes.

Imports ``logs.formats``, and names none of them.
"""
