"""Neighbours, mutation and crossover.

Imports the modules directly in ``search``.
"""
