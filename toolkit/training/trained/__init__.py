"""Trained models: on disk, and as scorers for a search."""
