"""One module per section: its rows and figures; its template is the file next to it.

Imports ``reports.page``.
"""
