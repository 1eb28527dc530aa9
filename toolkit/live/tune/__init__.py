"""Searches on the device.

Imports ``live.space`` and ``live.measure``.
"""
