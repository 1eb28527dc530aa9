"""Autotune caches of Triton. Imports ``logs.rows``."""
