"""Replays in one or many processes. Imports ``replay.record`` and ``replay.statistics``."""
