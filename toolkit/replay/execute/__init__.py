"""Work in any process. Imports ``replay.record`` and ``replay.statistics``."""
