"""Workloads that can be tuned without a network: layers, TVM's workloads by name, random ones.

Imports ``live.space``.
"""
