"""Results and options as MLflow takes them: flat, and under names that every version accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TEXT = 5000
"""Most characters that MLflow takes in a parameter or a tag."""


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists as one level: ``models.0.rounds``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, (list, tuple)) and any(isinstance(one, Mapping) for one in value):
            value = dict(enumerate(value))
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        elif value is not None:
            found[name] = value
    return found


def figures(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a result by name: ``top1``, ``top1_interval/low``, ``levels/tile/accuracy``.

    Rows of tables are left out: they are in the summary.
    """
    found: dict[str, float] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= figures(value, f"{name}/")
        elif isinstance(value, (list, tuple)) and str(key).endswith("interval"):
            ends = dict(zip(("low", "high"), value, strict=False))
            found |= figures(ends, f"{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = float(value)
    return found


def clean(name: str) -> str:
    """A name as every version of MLflow takes it."""
    return re.sub(r"/+", "/", re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)).strip("/")[:250]


def short(value: Any) -> str:
    """A value as the text of a parameter or a tag."""
    return str(value)[:TEXT]
