"""Rows and figures of each section.

Imports ``reports.page``.
"""
