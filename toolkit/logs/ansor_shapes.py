"""Ansor lines that differ in their digits only: what each number of them means.

The steps of one line are parsed and followed to its decisions; the numbers of all others with
the same bytes between their digits become decisions, extents and measurements by array
operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.ansor import AnsorReader
from toolkit.logs.ansor_steps import BadStep, PragmaText, Run, StepReader
from toolkit.logs.number_runs import FixedRuns, Runs, RunsPattern, Texts
from toolkit.records import Sketch, canonical_json

_MANY_VARIANTS = 64
_PRODUCT_LIMIT = float(2**62)
_NUMBER = rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_RESULT = re.compile(
    rb"\[(?P<numbers>\[(?:%b(?:, ?%b)*)?\], ?-?[0-9]+, ?%b, ?%b)\],"
    rb' ?"v": ?"(?P<version>[ !#-\[\]-~]*)"\}\s*' % ((_NUMBER,) * 4)
)


class Measured(NamedTuple):
    """What lines say of their measurements: costs ``(lines, costs)``, all else ``(lines,)``."""

    costs: NDArray[np.float64]
    errors: NDArray[np.int64]
    elapsed: NDArray[np.float64]
    timestamps: NDArray[np.float64]


class Shape:
    """Lines with the same bytes between their digits, from their steps on.

    A line is ``<steps><mark>[[costs], error number, elapsed, timestamp], "v": "version"}``.
    """

    def __init__(self, text: bytes, end: int, mark: bytes, result: re.Match[bytes]) -> None:
        self.version = result["version"].decode()
        self.pattern = RunsPattern(text)
        self._mark = mark
        self._spaces, self._step_spaces = text.count(b" "), text.count(b" ", 0, end)
        self.steps = int((self.pattern.starts < end).sum())
        self._end_gap = int(self.pattern.starts[self.steps]) - end
        version = np.flatnonzero(self.pattern.starts >= result.end("numbers"))
        self._version = FixedRuns(self.pattern, version, self.steps)
        spans = [
            found.span()
            for found in re.compile(_NUMBER).finditer(text, end + len(mark), result.end("numbers"))
        ]
        signs = [int(text[begin : begin + 1] == b"-") for begin, _ in spans]
        self._signs = np.array(signs, dtype=np.int64)
        begins = [begin + sign for (begin, _), sign in zip(spans, signs, strict=True)]
        self._first = np.searchsorted(self.pattern.starts, begins) - self.steps
        stops = [stop for _, stop in spans]
        self._last = np.searchsorted(self.pattern.ends, stops) - self.steps
        self._variants: list[Variant] = []

    @classmethod
    def of(cls, text: bytes, mark: bytes) -> Shape | None:
        """The shape of a line (from its steps on); ``None`` where its text is not plain enough.

        ``mark`` is what stands between the steps and the costs.
        """
        end = text.rfind(mark)
        result = _RESULT.fullmatch(text, end + len(mark)) if end >= 0 else None
        if result is None or b"\\" in text:
            return None
        try:
            parsed = orjson.loads(b"[" + text[:end] + b"]")
        except orjson.JSONDecodeError:
            return None
        # What is stored is the text without spaces: it must be the canonical one.
        if canonical_json(parsed) != b"[" + text[:end].translate(None, b" ") + b"]":
            return None
        return cls(text, end, mark, result)

    def measured(self, runs: Runs) -> tuple[Measured, NDArray[np.bool_]]:
        """What lines measured, and which of them were understood, by the runs behind the steps."""
        numbers, good = runs.numbers(self._first, self._last, self._signs)
        good &= (numbers[:, -3] >= 0) & (numbers[:, -3] <= 8) & self._version.matches(runs)
        errors = np.where(good, numbers[:, -3], 8).astype(np.int64)
        return Measured(numbers[:, :-3], errors, numbers[:, -2], numbers[:, -1]), good

    def schedules(self, texts: Texts, runs: Runs) -> list[bytes]:
        """The canonical schedules of lines, by the runs behind the steps.

        They are the steps without spaces, as TVM nests them.
        """
        text = texts.whole.translate(None, b" ")
        begins = runs.begins - self._spaces * runs.order
        lengths = runs.starts[:, 0] - self._end_gap - runs.begins - self._step_spaces
        # Two brackets behind the steps belong to the schedule.
        ends = (begins + lengths + 2).tolist()
        return [b"[[],[" + text[a:b] for a, b in zip(begins.tolist(), ends, strict=True)]

    def variants(
        self, texts: Texts, runs: Runs, reader: AnsorReader
    ) -> Iterator[tuple[Variant, NDArray[np.intp]]]:
        """Sort rows of runs, which are those of texts, by variants; rows of none are left out."""
        rows = np.arange(len(runs.order))
        at = 0
        while len(rows):
            if at == len(self._variants):
                text = texts.text(int(runs.order[rows[0]]))
                made = None
                if at < _MANY_VARIANTS:
                    made = Variant.of(text, text.rfind(self._mark), reader)
                if made is None:
                    return
                self._variants.append(made)
            variant = self._variants[at]
            same = variant.fixed.matches(runs.some(rows))
            if same.any():
                yield variant, rows[same]
                rows = rows[~same]
            at += 1


class Decided(NamedTuple):
    """Decisions of lines ``(lines, knobs' parts)`` and extents of their loops.

    ``small`` marks lines whose numbers were understood and stay within 64 bits.
    """

    matrix: NDArray[np.int64]
    small: NDArray[np.bool_]
    extents: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[Decided]) -> Decided:
        """Put parts one after the other."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))


class Variant:
    """How numbers become decisions, for lines that agree in all other numbers of their steps.

    ``fixed`` are those other numbers.
    """

    def __init__(self, reader: StepReader, sketch: Sketch, text: bytes, steps: int) -> None:
        pattern = RunsPattern(text)
        self.sketch = sketch
        self._width = len(reader.decisions)
        told = [part for part in reader.decisions if isinstance(part, Run)]
        for _, extent, lengths in reader.splits:
            told += [part for part in (extent, *lengths) if isinstance(part, Run)]
        self._free = np.unique(np.array([part.column for part in told], dtype=np.intp))
        self._negative = pattern.negative[self._free]
        self.fixed = FixedRuns(pattern, np.setdiff1d(np.arange(steps), self._free))
        decisions = [self._renumbered(part) for part in reader.decisions]
        taken = [(at, part) for at, part in enumerate(decisions) if isinstance(part, Run)]
        self._taken = np.array([at for at, _ in taken], dtype=np.intp)
        self._columns = np.array([part.column for _, part in taken], dtype=np.intp)
        self._shifts = np.array([part.shift for _, part in taken], dtype=np.int64)
        self._constants = [
            (at, part) for at, part in enumerate(decisions) if not isinstance(part, Run)
        ]
        self._splits = [
            (at, self._renumbered(extent), tuple(map(self._renumbered, lengths)))
            for at, extent, lengths in reader.splits
        ]
        self._extents = [self._renumbered(extent) for extent in reader.extents]

    def _renumbered(self, part: int) -> int:
        """A number with its column among the free ones."""
        if not isinstance(part, Run):
            return part
        return Run(int(part), int(np.searchsorted(self._free, part.column)), part.shift)

    @classmethod
    def of(cls, text: bytes, end: int, reader: AnsorReader) -> Variant | None:
        """Follow the numbers of steps to their decisions; ``None`` where that is not linear.

        The steps are the text up to ``end``.
        """
        steps = text[:end]
        values, good = RunsPattern(steps).read([steps])
        if not good[0]:
            return None
        try:
            traced = StepReader()
            traced.read(_Tracer(values[0]).trace(orjson.loads(b"[" + steps + b"]")))
            plain = StepReader()
            plain.read(orjson.loads(b"[" + steps + b"]"))
        except (BadStep, _NotPlainError):
            return None
        if not traced.linear or list(traced.decisions) != list(plain.decisions):
            return None
        variant = cls(traced, reader.sketch(plain), text, values.shape[1])
        decided = variant.decide(RunsPattern(text).find(Texts([text])))
        if not decided.small[0] or decided.matrix[0].tolist() != plain.decisions:
            return None
        return variant

    def decide(self, runs: Runs) -> Decided:
        """Decisions of lines whose fixed numbers match."""
        values, small = runs.values(self._free, self._negative)
        count = len(values)
        matrix = np.empty((count, self._width), dtype=np.int64)
        matrix[:, self._taken] = values[:, self._columns] + self._shifts
        for at, part in self._constants:
            matrix[:, at] = part
        for at, extent, lengths in self._splits:
            product = np.ones(count, dtype=np.int64)
            size = np.ones(count, dtype=np.float64)
            for length in lengths:
                factor = _column(values, length)
                product *= factor
                size *= np.abs(factor)
            whole = _column(values, extent)
            small &= size < _PRODUCT_LIMIT
            known = (whole > 0) & (product > 0)
            matrix[:, at] = np.where(known, -(-whole // np.where(known, product, 1)), 0)
        extents = np.empty((count, len(self._extents)), dtype=np.int64)
        for at, extent in enumerate(self._extents):
            extents[:, at] = _column(values, extent)
        return Decided(matrix, small, extents)


def _column(values: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    if isinstance(number, Run):
        return values[:, number.column] + number.shift
    return np.full(len(values), number, dtype=np.int64)


class _NotPlainError(Exception):
    """A step holds what is no integer, word or list of these."""


class _Tracer:
    """Replaces the numbers of steps by ones that know their run of digits."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self._values = values
        self._next = 0

    def trace(self, steps: Any) -> Any:
        """Give the steps again, with numbers that know where they come from."""
        traced = self._trace(steps)
        if self._next != len(self._values):
            raise _NotPlainError
        return traced

    def _run(self, value: int) -> Run:
        if self._next >= len(self._values) or int(self._values[self._next]) != value:
            raise _NotPlainError
        self._next += 1
        return Run(value, self._next - 1)

    def _trace(self, item: Any) -> Any:
        if type(item) is int:
            return self._run(item)
        if isinstance(item, list):
            return [self._trace(part) for part in item]
        if isinstance(item, str):
            return self._word(item)
        if item is None:
            return None
        raise _NotPlainError

    def _word(self, word: str) -> Any:
        found = re.findall(r"[0-9]+", word)
        runs = []
        for digits in found:
            # A minus inside a word is no sign, but the pattern takes it for one.
            negative = self._next < len(self._values) and self._values[self._next] < 0
            runs.append(self._run(-int(digits) if negative else int(digits)))
        value = word.rpartition("$")[2]
        if runs and value == found[-1] and "$" in word and runs[-1] >= 0:
            pragma = PragmaText(word)
            pragma.run = runs[-1]
            return pragma
        return word
