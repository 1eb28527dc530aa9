"""Figures of mutation models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.reports.charts import Figure

Section = Mapping[str, Any]


def mutation_figures(model: Section, key: str) -> list[Figure]:
    """All figures of one mutation model; ``key`` tells models apart."""
    return []
