"""Ansor steps that differ in some of their numbers only: what each of these means.

The steps of one line are parsed and followed to its decisions; the numbers of all others with
the same bytes between them become decisions and extents by array operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.formats.ansor.reader import AnsorReader
from toolkit.logs.formats.ansor.steps import BadStep, DigitRun, PragmaText, StepReader
from toolkit.logs.rows.base import BadLine, refuse_deep
from toolkit.logs.rows.number_runs import MAX_DIGITS, RUN, Pattern, Runs
from toolkit.records import Sketch, canonical_json

_KEPT = 20_000
_MANY = 64
"""So many variants are tried on a text; further ones are left to the reader of single lines."""
_PRODUCT_LIMIT = float(2**62)


class Decided(NamedTuple):
    """Decisions of lines ``(lines, knobs' parts)`` and extents of their loops.

    ``small`` marks lines whose numbers were understood, stay within 64 bits and can be.
    """

    matrix: NDArray[np.int64]
    small: NDArray[np.bool_]
    extents: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[Decided]) -> Decided:
        """Put parts one after the other."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))

    def some(self, lines: NDArray[np.bool_]) -> Decided:
        """The decisions of some of the lines."""
        if lines.all():
            return self
        return Decided(self.matrix[lines], self.small[lines], self.extents[lines])


class Shapes:
    """All variants that were met, by their number of runs."""

    def __init__(self, reader: AnsorReader) -> None:
        self._reader = reader
        self._variants: dict[int, list[Variant]] = {}
        self._usual: Variant | None = None

    def read(self, runs: Runs) -> Iterator[tuple[Variant, NDArray[np.intp], Decided]]:
        """Give rows of texts of steps with their decisions; those of no variant are left out."""
        if sum(map(len, self._variants.values())) > _KEPT:
            self._variants.clear()
        rows = np.arange(len(runs))
        usual, self._usual = self._usual, None
        if usual is not None:
            # Most lines of a log are alike as a rule: these need not be searched for numbers.
            mask, decided = usual.follow(runs)
            if mask.any():
                yield usual, rows[mask], decided
                rows = rows[~mask]
            if 2 * len(rows) <= len(runs):
                self._usual = usual
        for count, some in _by_count(runs, rows):
            for variant, found, decided in self._of_count(count, runs, some):
                if 2 * len(found) > len(runs):
                    self._usual = variant
                yield variant, found, decided

    def _of_count(
        self, count: int, runs: Runs, rows: NDArray[np.intp]
    ) -> Iterator[tuple[Variant, NDArray[np.intp], Decided]]:
        known = self._variants.setdefault(count, [])
        at = 0
        while len(rows):
            if at == len(known):
                made = None
                if at < _MANY:
                    made = Variant.of(runs.text(int(rows[0])), self._reader)
                if made is None:
                    return
                known.append(made)
            mask, decided = known[at].read(runs, rows)
            if mask.any():
                yield known[at], rows[mask], decided
                rows = rows[~mask]
            at += 1


def _by_count(runs: Runs, rows: NDArray[np.intp]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Rows of texts that have as many runs."""
    if not len(rows):
        return
    of_row = runs.counts[rows]
    if (of_row == of_row[0]).all():
        yield int(of_row[0]), rows
        return
    order = np.argsort(of_row, kind="stable")
    counts, begins = np.unique(of_row[order], return_index=True)
    yield from zip(counts.tolist(), np.split(rows[order], begins[1:]), strict=True)


class Variant:
    """How numbers become decisions, for steps that agree in all other bytes."""

    def __init__(self, reader: StepReader, sketch: Sketch, text: bytes) -> None:
        told: list[int] = [*reader.decisions, *reader.extents]
        for _, extent, lengths in reader.splits:
            told += [extent, *lengths]
        free = sorted({part.column for part in told if isinstance(part, DigitRun)})
        constants = sorted({int(part) for part in told if not isinstance(part, DigitRun)})
        self.sketch = sketch
        self._pattern = Pattern(text, free)
        self._constants = np.array(constants, dtype=np.int64)
        column_of = {column: place for place, column in enumerate(free)}
        constant_of = {value: len(free) + place for place, value in enumerate(constants)}

        def columns(parts: Sequence[int]) -> _Columns:
            return _Columns(
                np.array(
                    [
                        column_of[part.column] if isinstance(part, DigitRun) else constant_of[part]
                        for part in parts
                    ],
                    dtype=np.intp,
                ),
                np.array(
                    [part.shift if isinstance(part, DigitRun) else 0 for part in parts],
                    dtype=np.int64,
                ),
            )

        self._decisions, self._extents = columns(reader.decisions), columns(reader.extents)
        # Tiles with as many parts are computed together.
        self._splits: list[tuple[NDArray[np.intp], _Columns, list[_Part]]] = []
        for size in sorted({len(lengths) for _, _, lengths in reader.splits}):
            alike = [split for split in reader.splits if len(split[2]) == size]
            outermost = np.array([at for at, _, _ in alike], dtype=np.intp)
            parts = []
            for n in range(size):
                nth = [each[n] for _, _, each in alike]
                named = np.array([isinstance(length, DigitRun) for length in nth], dtype=np.bool_)
                parts.append(_Part(columns(nth), named))
            self._splits.append((outermost, columns([extent for _, extent, _ in alike]), parts))

    @classmethod
    def of(cls, text: bytes, reader: AnsorReader) -> Variant | None:
        """Follow the numbers of steps to their decisions.

        ``None`` where that is not linear, or where the text is not the canonical one but for its
        spaces (what is stored of other texts is the text without spaces).
        """
        numbers = _numbers(text)
        if numbers is None or b"\\" in text:
            return None
        try:
            steps = orjson.loads(b"[" + text + b"]")
            refuse_deep(text)
            if canonical_json(steps) != b"[" + text.translate(None, b" ") + b"]":
                return None
            traced = StepReader()
            traced.read(_Tracer(numbers).trace(steps))
            plain = StepReader()
            plain.read(steps)
        except (orjson.JSONDecodeError, BadLine, BadStep, _NotPlainError):
            return None
        if not traced.linear or list(traced.decisions) != list(plain.decisions):
            return None
        variant = cls(traced, reader.sketch(plain), text)
        mask, decided = variant.read(Runs([text]), np.zeros(1, dtype=np.intp))
        if not mask.all() or not decided.small.all():
            return None
        return variant if decided.matrix[0].tolist() == plain.decisions else None

    def read(self, runs: Runs, rows: NDArray[np.intp]) -> tuple[NDArray[np.bool_], Decided]:
        """Which rows of texts, all with as many runs, are of this variant; their decisions."""
        mask, values, small = self._pattern.read(runs, rows)
        return mask, self._decide(values, small)

    def follow(self, runs: Runs) -> tuple[NDArray[np.bool_], Decided]:
        """As ``read`` of all texts: faster where most are of this variant, may leave some out."""
        mask, values, small = self._pattern.follow(runs)
        return mask, self._decide(values, small)

    def _decide(self, values: NDArray[np.int64], small: NDArray[np.bool_]) -> Decided:
        """Decisions from the values of free runs."""
        if len(self._constants):
            shape = len(values), len(self._constants)
            values = np.concatenate([values, np.broadcast_to(self._constants, shape)], axis=1)
        matrix = self._decisions.of(values)
        for outermost, extents, parts in self._splits:
            whole = extents.of(values)
            product = np.ones_like(whole)
            size = np.ones(whole.shape)
            for part in parts:
                factor = part.columns.of(values)
                small &= ((factor > 0) | ~part.told).all(axis=1)
                product *= factor
                size *= np.abs(factor)
            small &= (size < _PRODUCT_LIMIT).all(axis=1)
            known = (whole > 0) & (product > 0)
            outer = -(-whole // np.where(known, product, 1))
            matrix[:, outermost] = np.where(known, outer, 0)
        return Decided(matrix, small, self._extents.of(values))


class _Part(NamedTuple):
    """One length of each of several splits, and which of them the steps tell."""

    columns: _Columns
    told: NDArray[np.bool_]


class _Columns(NamedTuple):
    """Columns of a matrix of numbers, and what is added to each."""

    places: NDArray[np.intp]
    shifts: NDArray[np.int64]

    def of(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values.take(self.places, axis=1) + self.shifts


def _numbers(text: bytes) -> list[int] | None:
    """The runs of digits as numbers, with their signs; ``None`` where one is not plain."""
    numbers = []
    for found in RUN.finditer(text):
        digits = found[0]
        negative = text[max(found.start() - 1, 0) : found.start()] == b"-"
        if len(digits) > MAX_DIGITS or (digits[0] == ord("0") and (len(digits) > 1 or negative)):
            return None
        numbers.append(-int(digits) if negative else int(digits))
    return numbers


class _NotPlainError(Exception):
    """A step holds what is no integer, word or list of these."""


class _Tracer:
    """Replaces the numbers of steps by ones that know their run of digits."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values
        self._next = 0

    def trace(self, steps: Any) -> Any:
        """Give the steps again, with numbers that know where they come from."""
        traced = self._trace(steps)
        if self._next != len(self._values):
            raise _NotPlainError
        return traced

    def _run(self, value: int) -> DigitRun:
        if self._next >= len(self._values) or self._values[self._next] != value:
            raise _NotPlainError
        self._next += 1
        return DigitRun(value, self._next - 1)

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
