"""Logs of Ansor (``auto_scheduler``). Imports ``logs.rows``."""
