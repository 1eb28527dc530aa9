"""Marks tests that need a TVM with Ansor, in an interpreter of its own."""

from __future__ import annotations

import os

import pytest

needs_ansor = pytest.mark.skipif(
    "TOOLKIT_ANSOR_PYTHON" not in os.environ,
    reason="TOOLKIT_ANSOR_PYTHON names no interpreter with a TVM that has Ansor",
)
