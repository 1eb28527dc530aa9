"""Theme and charts of the page, and where its figures come from.

Imports the ground alone.
"""
