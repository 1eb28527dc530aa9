"""Theme and charts of the page, the words of its figures, and where its rows come from.

Imports no other part of ``reports``.
"""
