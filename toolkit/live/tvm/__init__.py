"""The toolkit's models and strategies inside TVM's own tuner, and that tuner.

Imports ``live.tune``.
"""
