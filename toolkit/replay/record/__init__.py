"""A task's record and its noise. Imports ``search``, ``training``, ``datasets``."""
