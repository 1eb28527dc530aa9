"""Programs that are sent to a measuring process, and the results it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.records import TrialState


@dataclass(frozen=True, slots=True)
class Program:
    """A scheduled module as TVM's JSON, and the arguments of its entry function.

    ``arguments`` is ``[["TENSOR", dtype, shape], ...]``. The program reads the first ``inputs`` of
    them and writes the others.
    """

    key: str
    text: str
    arguments: list[Any]
    inputs: int


REFUSED = Program("refused", "", [], 0)
"""Stands for a schedule that TVM refuses. It is not built: its result says that TVM refuses it."""


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The result of one request to the worker; times in seconds.

    ``first`` marks a program that was dropped after a first short reading (``Protocol``).
    ``processors`` are the ones that its threads were bound to, if any. ``difference`` is the
    largest difference of its outputs from the reference's, as a share of their range.
    """

    state: TrialState
    run_times_s: tuple[float, ...] = ()
    build_s: float = 0.0
    run_s: float = 0.0
    foreign_share: float = 0.0
    retries: int = 0
    error: str | None = None
    first: bool = False
    processors: tuple[int, ...] = ()
    difference: float | None = None
