"""One thing to predict a module.

Imports every other room of ``training``.
"""
