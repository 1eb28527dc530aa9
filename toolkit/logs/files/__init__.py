"""Where the bytes of logs come from: found, decompressed, told by their content.

Imports the ground alone.
"""
