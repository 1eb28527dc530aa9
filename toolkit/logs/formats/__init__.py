"""One folder a format, and what writes logs again.

Imports ``logs.rows`` and ``logs.files``.
"""
