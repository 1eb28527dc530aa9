"""Tuning logs of tensor compilers as an asset: ingest, train, replay, confirm live."""

__version__ = "0.1.0"
