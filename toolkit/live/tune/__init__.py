"""Searches on the device.

Imports ``live.workloads``, ``live.space`` and ``live.measure``.
"""
