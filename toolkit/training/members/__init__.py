"""Several models as one, none judged on what it saw.

Imports ``training.models`` and ``training.table``.
"""
