"""Races: TVM's own tuner against the toolkit's.

Imports every other room of ``live``.
"""
