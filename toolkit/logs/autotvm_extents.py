"""Extents of the axes that AutoTVM knobs split, as far as the workload's shapes tell them."""

from __future__ import annotations

from typing import Any


def axis_extents(task_name: str, arguments: list[Any]) -> dict[str, int]:
    """Map knob names (``tile_oc``) to the extent of the axis that they split."""
    return {}
