"""Shared by all readers: ids, columns, reading many lines at once. Imports ``logs.files``."""
