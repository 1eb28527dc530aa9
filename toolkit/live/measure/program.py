"""What a measuring process is given, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.records import TrialState


@dataclass(frozen=True, slots=True)
class Program:
    """A scheduled module as TVM's JSON, and the arguments of its entry function.

    ``arguments`` is ``[["TENSOR", dtype, shape], ...]``; the first ``inputs`` of them are read,
    the others written.
    """

    key: str
    text: str
    arguments: list[Any]
    inputs: int


REFUSED = Program("refused", "", [], 0)
"""Stands for a schedule that TVM refuses: it is not built, and says so."""


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """What one request to the worker gave; times in seconds.

    ``first`` marks a program that was dropped after a first short reading (``Protocol``);
    ``processors`` are those that its threads were bound to, if they were. ``difference`` is by how
    much its outputs differ at most from the reference's, as a share of their range.
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
