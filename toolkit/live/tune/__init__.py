"""Searches on the device, and their winners.

Imports ``live.workloads``, ``live.space`` and ``live.measure``.
"""
