"""The toolkit's models and strategies inside TVM's own tuner, and TVM's tuner as it is.

Imports ``live.tune``.
"""
