"""Metrics of runs, and their uncertainty. Imports ``replay.record``."""
