"""Neighbours, mutation and crossover.

Imports the ground of ``search``.
"""
