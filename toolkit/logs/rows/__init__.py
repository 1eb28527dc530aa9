"""What every reader shares: identities, columns, many lines at once.

Imports the ground alone.
"""
