"""Forecasts of runs on the device. Imports ``replay.execute``."""
