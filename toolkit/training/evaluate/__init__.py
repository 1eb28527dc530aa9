"""Metrics of models on tasks that they never saw."""
