"""Autotuning logs of PyTorch's Helion. Imports ``logs.files`` and ``logs.rows``."""
