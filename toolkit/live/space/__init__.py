"""TVM's design spaces as a space, the device as an oracle, and the database.

Imports ``live.measure``.
"""
