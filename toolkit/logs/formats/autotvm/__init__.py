"""Logs of AutoTVM. Imports ``logs.rows``."""
