"""TVM's design spaces for the strategies, measurements on the device, and the database.

Imports ``live.measure``.
"""
