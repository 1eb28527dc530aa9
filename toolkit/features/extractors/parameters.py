"""Extractor ``parameters``: features of logs with named parameters, without loops.

Kernel Tuner, Triton and Helion tune kernels that are written by hand: a log tells the values that
were chosen and what the kernel was called with, not what it computes. A model learns from it what
suits a kernel at other sizes and on other devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.features.base import CandidateGroup, Floats
from toolkit.features.extractors.columns import ColumnsExtractor
from toolkit.features.task.hardware import hardware_columns
from toolkit.logs.formats import FORMATS, format_named
from toolkit.records import Task

ARGUMENTS = 16
"""Maximum number of a call's numbers that become columns."""

_EXTENTS = ("block", "tile")
"""Parameters whose names hold such a word are multiplied: threads or outputs of a block."""

_WHOLE = re.compile(r"\b\d{1,15}\b")


class ParametersExtractor(ColumnsExtractor):
    """Named parameters → columns: numbers as they are, one column per word for words."""

    name = "parameters"
    version = 1

    def supports(self, task: Task) -> bool:
        """Tasks of a format that names this extractor."""
        return task.format in FORMATS.names() and format_named(task.format).extractor == self.name

    def columns(self, group: CandidateGroup) -> dict[str, Floats]:
        """Return values, products of block and tile sizes, and the numbers of the call."""
        rows = len(group)
        told = hardware_columns(group.task)
        for place, number in zip(range(ARGUMENTS), _numbers(group.task.arguments), strict=False):
            told[f"argument_{place}"] = number
        columns = {name: np.full(rows, value) for name, value in told.items()}
        for word in _EXTENTS:
            columns[f"{word}_product"] = np.ones(rows)
        for knob in group.sketch.knobs:
            for part in range(knob.width):
                name = knob.name if knob.width == 1 else f"{knob.name}_{part}"
                values = group.decisions[:, knob.offset + part].astype(np.float64)
                for code, label in knob.labels:
                    columns[f"parameter_{name}={label}"] = (values == code).astype(np.float64)
                if not knob.labels:
                    columns[f"parameter_{name}"] = values
                    for word in _EXTENTS:
                        if word in name.lower():
                            columns[f"{word}_product"] *= np.maximum(values, 1)
        return columns


def _numbers(arguments: Any) -> Iterator[float]:
    """Give the numbers of a JSON value in order, also those in strings (``"[4096, 512]"``)."""
    if isinstance(arguments, (int, float)) and not isinstance(arguments, bool):
        yield float(arguments)
    elif isinstance(arguments, str):
        yield from map(float, _WHOLE.findall(arguments))
    elif isinstance(arguments, (list, tuple, dict)):
        for part in arguments.values() if isinstance(arguments, dict) else arguments:
            yield from _numbers(part)
