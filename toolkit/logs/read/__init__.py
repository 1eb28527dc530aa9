"""Lines to rows, in as many processes as one likes.

Imports the formats of lines.
"""
