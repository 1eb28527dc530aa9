"""Read Ansor's transform steps into skeleton, knobs and decisions.

Step layouts (TVM ``src/auto_scheduler/transform_step.cc``, ``WriteToRecord``)::

    ["AN", stage, iterator, annotation]      ["FU", stage, [iterators]]
    ["PR", stage, iterator, "pragma$value"]  ["RE", stage, [order]]
    ["SP", stage, iterator, extent, [lengths], inner to outer]
    ["FSP", stage, iterator, step, splits]   ["FFSP", stage, iterator, [steps], level, factor?]
    ["SA", stage, iterator, factor, offset]  ["CA", stage, target stage, target iterator]
    ["CI", stage]  ["CR", stage]  ["RF", stage, iterator, factor iterator]
    ["CHR", stage, scope, [readers]]         ["CHW", stage, scope]

Decisions are what Ansor's own mutators change: split lengths (``MutateTileSize``), unroll steps
(``MutateAutoUnroll``), attachment (``MutateComputeLocation``) and how many loops are fused before
they run in parallel (``MutateParallel``) or as a vector. Everything else is skeleton.
"""

from __future__ import annotations

import math
from typing import Any

from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.identity import KnobList

VECTORIZE, PARALLEL = 2, 3
_INT64 = 2**63


class DigitRun(int):
    """An integer with the number of the run of digits that it was read from.

    ``shift`` is what was added to the run's value since then.
    """

    column: int
    shift: int

    def __new__(cls, value: int, column: int, shift: int = 0) -> DigitRun:
        run = super().__new__(cls, value)
        run.column, run.shift = column, shift
        return run

    def __add__(self, other: int) -> DigitRun:
        return DigitRun(int(self) + other, self.column, self.shift + other)


class TracedText(str):
    """A word of the steps; in ``columns`` each run of digits is replaced by its number."""

    columns: str


def _int(value: Any) -> int:
    if type(value) not in (int, DigitRun) or not -_INT64 < value < _INT64:
        raise BadLine("a step's number is not a 64-bit integer")
    number: int = value
    return number


class StepReader:
    """Reads one record's steps.

    Attributes
    ----------
    skeleton
        The steps without decisions.
    decisions
        Flat values in the layout of ``knobs``.
    extents
        Extents of loops that were split before a fusion or attachment changed their stage: they
        belong to the workload, not to the schedule.
    splits
        For each tile: the index of its outermost factor in ``decisions``, the extent, the lengths.
    linear
        Whether every decision is a number of the steps plus a constant (or an outermost factor).
    """

    def __init__(self) -> None:
        self.skeleton: list[list[Any]] = []
        self.decisions: list[int] = []
        self.knobs = KnobList()
        self.extents: tuple[int, ...] = ()
        self.splits: list[tuple[int, int, tuple[int, ...]]] = []
        self.linear = True
        self._shifts: dict[int, list[tuple[int, int]]] = {}
        self._reshaped: set[int] = set()

    def read(self, steps: Any) -> None:
        """Read all steps in order; raise ``BadLine`` at the first invalid one."""
        if not isinstance(steps, list):
            raise BadLine("the steps are not a list")
        at = 0
        while at < len(steps):
            step = steps[at]
            if not isinstance(step, list) or not step:
                raise BadLine("a step is not a list")
            if not isinstance(step[0], str) or step[0] not in _HANDLERS:
                raise BadLine(f"unknown step {str(step[0])[:20]!r}")
            handler, *lengths = _HANDLERS[step[0]]
            if len(step) not in lengths:
                raise BadLine(f"the step {step[0]} has {len(step)} items")
            if step[0] == "FU" and self._fuse(step, steps[at + 1 : at + 2]):
                at += 2
                continue
            handler(self, step)
            at += 1

    def _decide(self, name: str, kind: str, *parts: int) -> None:
        self.knobs.add(name, kind, len(parts))
        self.decisions.extend(parts)

    def _place(self, stage: int, iterator: int) -> int:
        """Number an iterator as if the loops that a decision fused were still separate."""
        for after, removed in self._shifts.get(stage, ()):
            if iterator > after:
                iterator = iterator + removed
        return iterator

    def _fuse(self, step: list[Any], behind: list[Any]) -> bool:
        """Read a fusion and the annotation after it as one decision: the number of loops."""
        fused, following = step[2], behind[0] if behind else None
        if not isinstance(fused, list) or not fused:
            raise BadLine("FU has no iterators")
        if not (
            isinstance(following, list)
            and len(following) == 4
            and following[:3] == ["AN", step[1], fused[0]]
            and following[3] in (VECTORIZE, PARALLEL)
        ):
            return False
        stage, first = _int(step[1]), _int(fused[0])
        self._annotate(stage, first, following[3], len(fused))
        self._shifts.setdefault(stage, []).append((first, len(fused) - 1))
        self._reshaped.add(stage)
        return True

    def _annotate(self, stage: int, iterator: int, kind: int, loops: int) -> None:
        word = "vectorize" if kind == VECTORIZE else "parallel"
        # A vector consists of the innermost loops, so its last loop stays in place.
        place = self._place(stage, iterator) + (loops - 1 if kind == VECTORIZE else 0)
        self.skeleton.append(["AN", stage, place, kind])
        self._decide(f"{word}:s{stage}:i{place}", word, loops)

    def _an(self, step: list[Any]) -> None:
        stage, iterator, kind = (_int(item) for item in step[1:])
        if kind in (VECTORIZE, PARALLEL):
            self._annotate(stage, iterator, kind, 1)
        else:
            self.skeleton.append(["AN", stage, self._place(stage, iterator), kind])

    def _fu(self, step: list[Any]) -> None:
        stage = _int(step[1])
        self._reshaped.add(stage)
        self.skeleton.append(["FU", stage, [self._place(stage, _int(i)) for i in step[2]]])

    def _sp(self, step: list[Any]) -> None:
        stage, iterator = _int(step[1]), self._place(_int(step[1]), _int(step[2]))
        extent = 0 if step[3] is None else _int(step[3])
        if extent < 0:
            raise BadLine("SP has a negative extent")
        if not isinstance(step[4], list):
            raise BadLine("SP has no list of lengths")
        lengths = [0 if length is None else _int(length) for length in step[4]]
        if any(length < 1 for length in step[4] if length is not None):
            raise BadLine("SP has a length that is not positive")
        product = math.prod(lengths)
        outermost = -(-extent // product) if extent > 0 and product > 0 else 0
        inner_to_outer = int(bool(step[5])) if len(step) > 5 else 1
        self.splits.append((len(self.decisions), extent, tuple(lengths)))
        # If lengths go from outer to inner, the innermost part follows from the others. It comes
        # first, because a tile's first part is the one that is not chosen.
        outer = "" if inner_to_outer else ":outer"
        self._decide(f"SP:s{stage}:i{iterator}{outer}", "tile", outermost, *lengths)
        self.skeleton.append(["SP", stage, iterator, len(lengths), inner_to_outer])
        if extent and stage not in self._reshaped:
            self.extents += (extent,)

    def _pr(self, step: list[Any]) -> None:
        stage, iterator = _int(step[1]), self._place(_int(step[1]), _int(step[2]))
        if not isinstance(step[3], str):
            raise BadLine("PR has no pragma")
        name, dollar, value = step[3].partition("$")
        if dollar and value.isascii() and value.isdigit() and len(value) < 18:
            self.skeleton.append(["PR", stage, iterator, name])
            number = int(value)
            if isinstance(step[3], TracedText):
                number = DigitRun(number, int(step[3].columns.partition("$")[2]))
            self._decide(f"unroll:s{stage}", "unroll", number)
        else:
            self.skeleton.append(["PR", stage, iterator, step[3]])

    def _ca(self, step: list[Any]) -> None:
        stage, target, iterator = (_int(item) for item in step[1:])
        self.skeleton.append(["CA", stage, target])
        self._reshaped.add(stage)
        if self._shifts.get(target):
            self.linear = False  # the added constant depends on the number
        self._decide(f"CA:s{stage}", "compute_location", _int(self._place(target, iterator)))

    def _plain(self, step: list[Any]) -> None:
        for item in step[1:]:
            if not isinstance(item, (int, str, list)) and item is not None:
                raise BadLine(f"an item of {step[0]} is not a number, word or list")
        self.skeleton.append(list(step))

    def _inserts(self, step: list[Any]) -> None:
        """Read a step that inserts a stage: renumber what is known of later stages."""
        self._plain(step)
        stage = _int(step[1])
        if step[0] != "CHR":  # CHW and RF insert it before the step's stage, which moves, too
            stage -= 1
        self._shifts = {s + (s > stage): v for s, v in self._shifts.items()}
        self._reshaped = {s + (s > stage) for s in self._reshaped}
        if step[0] == "CHR":  # the cached extents follow from the schedule
            self._reshaped.add(stage + 1)


_HANDLERS: dict[str, tuple[Any, ...]] = {
    "AN": (StepReader._an, 4),
    "FU": (StepReader._fu, 3),
    "PR": (StepReader._pr, 4),
    "RE": (StepReader._plain, 3),
    "SP": (StepReader._sp, 5, 6),
    "FSP": (StepReader._plain, 5),
    "FFSP": (StepReader._plain, 6),
    "SA": (StepReader._plain, 5),
    "CA": (StepReader._ca, 4),
    "CI": (StepReader._plain, 2),
    "CR": (StepReader._plain, 2),
    "CHR": (StepReader._inserts, 4),
    "CHW": (StepReader._inserts, 3),
    "RF": (StepReader._inserts, 4),
}
"""The handler of each step, and how many items the step may have."""
