"""A section a module: its rows, its figures, and beside it its template.

Imports ``reports.page``.
"""
