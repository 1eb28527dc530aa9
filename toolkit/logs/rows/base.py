"""Shared by all readers: the content of a line, or the reason why it is no record."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from toolkit.records import ERROR_NUMBER_STATES, Sketch, Task, TrialState, canonical_json

INT64_MAX = 2**63 - 1

SHORTEST_S, LONGEST_S = 1e-10, 1e6
"""No program runs for less than half a cycle of the fastest clock, or for more than 11 days.

Other costs are no measurements: AutoTVM writes 1e9 for a failure, the others 1e10.
"""

TOO_DEEP = "the JSON is nested too deeply, or has a number beyond 64 bits"


class BadLine(Exception):
    """A line is no record; the message is the reason that is stored with it."""


class Reading(NamedTuple):
    """The content of one line, before it is added to a dataset."""

    task: Task
    sketch: Sketch
    decisions: tuple[int, ...]
    schedule: str
    format_version: str
    state: TrialState
    run_times_s: tuple[float, ...] = ()
    error_number: int | None = None
    elapsed_s: float | None = None
    timestamp: float | None = None
    tvm_version: str | None = None

    @property
    def latency_s(self) -> float | None:
        """Arithmetic mean of the repeats in seconds, correctly rounded; ``None`` unless ok."""
        times = self.run_times_s
        return math.fsum(times) / len(times) if times else None


def outcome_of(costs: Any, error_number: Any) -> tuple[TrialState, tuple[float, ...]]:
    """Translate logged costs and an error number into a state and run times in seconds.

    A failed trial has no run times. Costs that no program can have (``SHORTEST_S``,
    ``LONGEST_S``) make a trial ``UNKNOWN``, even if the error number is 0 (success). Raises
    ``BadLine`` if the costs are no list of numbers, or TVM has no such error number.
    """
    if not isinstance(costs, list):
        raise BadLine("the measured costs are not a list")
    for cost in costs:
        if type(cost) is not float and type(cost) is not int:
            raise BadLine("a measured cost is not a number")
    number = 0 if error_number is None else error_number
    if type(number) is not int or number not in ERROR_NUMBER_STATES:
        raise BadLine("the error number is not an integer from 0 to 8")
    state = ERROR_NUMBER_STATES[number]
    if state is not TrialState.OK:
        return state, ()
    if not costs or not SHORTEST_S <= min(costs) <= max(costs) <= LONGEST_S:
        return TrialState.UNKNOWN, ()
    return state, tuple(map(float, costs))


def seconds(value: Any, what: str) -> float | None:
    """Return a finite number as float, or ``None`` for ``None``; else raise ``BadLine``."""
    if value is None:
        return None
    if (type(value) is float or type(value) is int) and math.isfinite(value):
        return float(value) + 0.0  # turns -0.0 into 0.0: otherwise equal records would have two ids
    raise BadLine(f"the {what} is not a number")


MAX_NESTING = 100
"""Deeper nesting is refused: a value must also be writable inside other JSON."""

_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def refuse_deep(text: bytes) -> None:
    """Raise ``BadLine`` for JSON that is nested more than ``MAX_NESTING`` deep."""
    if text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        return
    left = _unpaired(text)
    if left and b"[]" not in left:  # brackets inside strings prevent the pairing
        left = _unpaired(_TEXT.sub(b"", text))
    if left:
        raise BadLine(TOO_DEEP)


def _unpaired(text: bytes) -> bytes:
    """Return the brackets left after removing innermost pairs, one level at a time."""
    left = text.translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(MAX_NESTING):
        if b"[]" not in left:
            break
        left = left.replace(b"[]", b"")
    return left


def check_extents(extents: Sequence[int]) -> None:
    """Raise ``BadLine`` for impossible loop extents: negative, or beyond 64 bits."""
    if extents and not 0 <= min(extents) <= max(extents) <= INT64_MAX:
        raise BadLine("an extent is negative or beyond 64 bits")


def check_shapes(arguments: Any) -> None:
    """Raise ``BadLine`` for tensors (``["TENSOR", ...]``) of impossible shapes."""
    waiting = [arguments]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
            if item and item[0] == "TENSOR":
                for shape in item[1:]:
                    if isinstance(shape, list):
                        check_extents([size for size in shape if type(size) is int])


def target_kind(target: str) -> str:
    """Return the first word of a target string, or the ``kind`` of a target in JSON."""
    text = target.strip()
    if not text.startswith("{"):
        return text.split(" ", 1)[0] or "unknown"
    try:
        kind = orjson.loads(text).get("kind")
    except orjson.JSONDecodeError:
        return "unknown"
    return kind if isinstance(kind, str) else "unknown"


def word_code(word: Any) -> int:
    """Return a stable code of a categorical value: integers unchanged, others by CRC-32."""
    if type(word) is int and abs(word) <= INT64_MAX:
        return word
    if type(word) is bool:
        return int(word)
    return zlib.crc32(canonical_json(word)) & 0x7FFFFFFF
