"""What can be tuned without a network: layers, workloads by name, and drawn ones.

Imports ``live.space``.
"""
