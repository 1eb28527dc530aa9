"""Databases of MetaSchedule. Imports ``logs.rows`` and ``logs.files``."""
