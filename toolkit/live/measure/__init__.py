"""How programs are built and measured, and on which device.

Imports no other room of ``live``.
"""
