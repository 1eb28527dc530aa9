"""Variants: Ansor steps that differ only in some of their numbers, read together.

The steps of one line are parsed, and its numbers are traced to its decisions. For all other steps
with the same bytes between the numbers, array operations turn the numbers into decisions and
extents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, groupby
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.formats.ansor.reader import AnsorReader
from toolkit.logs.formats.ansor.steps import DigitRun, StepReader, TracedText
from toolkit.logs.rows.base import BadLine, refuse_deep
from toolkit.logs.rows.number_runs import RUN, Pattern, Runs
from toolkit.records import Sketch, canonical_json

_KEPT = 20_000
_MANY = 64
"""Most variants tried on a text; other texts are left to the reader of single lines."""
_PRODUCT_LIMIT = float(2**62)


class Decided(NamedTuple):
    """Decisions of lines ``(lines, knobs' parts)`` and extents of their loops.

    ``small`` marks lines whose numbers are valid, possible and within 64 bits.
    """

    matrix: NDArray[np.int64]
    small: NDArray[np.bool_]
    extents: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[Decided]) -> Decided:
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))

    def some(self, lines: NDArray[np.bool_]) -> Decided:
        if lines.all():
            return self
        return Decided(self.matrix[lines], self.small[lines], self.extents[lines])


class _Found(NamedTuple):
    """Rows of texts of a variant; starts and stops of their free runs, ``(rows, columns)``."""

    variant: Variant
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    stops: NDArray[np.intp]


class Shapes:
    """All known variants, by their number of runs."""

    def __init__(self, reader: AnsorReader) -> None:
        self._reader = reader
        self._variants: dict[int, list[Variant]] = {}
        self._usual: Variant | None = None

    @property
    def met(self) -> bool:
        """Whether any steps were read."""
        return bool(self._variants)

    @property
    def usual(self) -> bool:
        """Whether most of the last steps had one variant."""
        return self._usual is not None

    def read(self, runs: Runs) -> Iterator[tuple[Variant, NDArray[np.intp], Decided]]:
        """Yield rows of step texts with their decisions; texts of no variant are left out."""
        if sum(map(len, self._variants.values())) > _KEPT:
            self._variants.clear()
        rows = np.arange(len(runs))
        usual, self._usual = self._usual, None
        if usual is not None:
            # Usually most lines of a log have one variant: they need no search for numbers.
            mask, decided = usual.follow(runs)
            if mask.any():
                yield usual, rows[mask], decided
                rows = rows[~mask]
            if 2 * len(rows) <= len(runs):
                self._usual = usual
        found: list[_Found] = []
        for number, some in _by_count(runs, rows):
            found += self._of_count(number, runs, some)
        if not found:
            return
        # The numbers of all variants are read together: many variants have only few lines.
        starts = np.concatenate([one.starts.ravel() for one in found])
        stops = np.concatenate([one.stops.ravel() for one in found])
        values, good = runs.values(starts, stops)
        end = 0
        for variant, members, places, _ in found:
            if 2 * len(members) > len(runs):
                self._usual = variant
            part, shape = slice(end, end + places.size), places.shape
            end = part.stop
            decided = variant.decided(values[part].reshape(shape), good[part].reshape(shape))
            yield variant, members, decided

    def _of_count(self, number: int, runs: Runs, rows: NDArray[np.intp]) -> Iterator[_Found]:
        known = self._variants.setdefault(number, [])
        for at in range(_MANY):
            if not len(rows):
                return
            if at == len(known):
                first = int(rows[0])
                text = runs.joined[runs.begins[first] : runs.ends[first]]
                made = Variant.of(text, self._reader)
                if made is None:
                    return
                known.append(made)
            mask, starts, stops = known[at].pattern.find(runs, rows)
            if mask.any():
                yield _Found(known[at], rows[mask], starts, stops)
                rows = rows[~mask]


def _by_count(runs: Runs, rows: NDArray[np.intp]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each number of runs with the rows of texts that have it."""
    if not len(rows):
        return
    of_row = runs.counts[rows]
    if (of_row == of_row[0]).all():
        yield int(of_row[0]), rows
        return
    order = np.argsort(of_row, kind="stable")
    rows, of_row = rows[order], of_row[order]
    begins = np.flatnonzero(np.diff(of_row, prepend=-1))
    yield from zip(of_row[begins].tolist(), np.split(rows, begins[1:]), strict=True)


class _Columns(NamedTuple):
    """Indices of some numbers of each line, and what is added to each (``shifts``, a column).

    The shape of numbers is ``(numbers, lines)`` here: an operation works on all lines at once.
    """

    places: NDArray[np.intp]
    shifts: NDArray[np.int64]

    def of(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        found = values[self.places]
        found += self.shifts
        return found


class _Splits(NamedTuple):
    """All splits of a variant; those with the same number of lengths stand side by side.

    ``lengths`` has the lengths of all splits: of each group of splits the innermost lengths, then
    the next ones. ``untold`` is a column over them: whether the steps do not give the length.
    ``groups`` has the number of lengths, and the number of splits, of each group.
    """

    outermost: NDArray[np.intp]
    extents: _Columns
    lengths: _Columns
    untold: NDArray[np.bool_]
    groups: list[tuple[int, int]]

    def outer(self, numbers: NDArray[np.int64], small: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Outermost factors ``(splits, lines)``; impossible lines are removed from ``small``."""
        factors, wholes = self.lengths.of(numbers), self.extents.of(numbers)
        small &= ((factors > 0) | self.untold).all(axis=0)
        reals, sizes = factors.astype(np.float64), np.empty(wholes.shape)
        products = np.empty_like(wholes)
        first = split = 0
        for parts, splits in self.groups:
            last, end = first + parts * splits, split + splits
            shape = (parts, splits, len(small))
            np.multiply.reduce(factors[first:last].reshape(shape), out=products[split:end])
            np.multiply.reduce(reals[first:last].reshape(shape), out=sizes[split:end])
            first, split = last, end
        small &= (sizes < _PRODUCT_LIMIT).all(axis=0)
        known = (wholes > 0) & (products > 0)
        products[~known] = 1
        outer = -(-wholes // products)
        outer[~known] = 0
        return outer


class Variant:
    """How numbers become decisions, for steps with equal bytes apart from these numbers."""

    def __init__(self, reader: StepReader, sketch: Sketch, text: bytes) -> None:
        told: list[int] = [*reader.decisions, *reader.extents]
        for _, extent, lengths in reader.splits:
            told += [extent, *lengths]
        free = sorted({part.column for part in told if isinstance(part, DigitRun)})
        constants = sorted({int(part) for part in told if not isinstance(part, DigitRun)})
        self.sketch = sketch
        self.pattern = Pattern(text, free)
        self._constants = np.array(constants, dtype=np.int64)
        # Constants come after the free runs.
        place_of = {column: place for place, column in enumerate(free)}
        constant_of = {value: place for place, value in enumerate(constants, len(free))}

        def columns(parts: Sequence[int]) -> _Columns:
            found = [
                (place_of[part.column], part.shift)
                if isinstance(part, DigitRun)
                else (constant_of[part], 0)
                for part in parts
            ]
            places, shifts = np.array(found, dtype=np.int64).reshape(-1, 2).T.copy()
            return _Columns(places, shifts[:, None])

        self._decisions, self._extents = columns(reader.decisions), columns(reader.extents)
        splits = sorted(reader.splits, key=lambda split: len(split[2]))
        groups = [(size, list(some)) for size, some in groupby(splits, lambda s: len(s[2]))]
        factors = [
            length
            for _, some in groups
            for level in zip(*(split[2] for split in some), strict=True)
            for length in level
        ]
        self._splits = _Splits(
            np.array([outermost for outermost, _, _ in splits], dtype=np.intp),
            columns([extent for _, extent, _ in splits]),
            columns(factors),
            np.array([not isinstance(length, DigitRun) for length in factors], np.bool_)[:, None],
            [(size, len(some)) for size, some in groups],
        )

    @classmethod
    def of(cls, text: bytes, reader: AnsorReader) -> Variant | None:
        """Trace the numbers of steps to their decisions.

        ``None`` if decisions are not linear in the numbers, or if the text without its spaces is
        not canonical JSON (all texts of a variant are stored as their text without spaces).
        """
        if b"\\" in text:
            return None
        numbers = count()
        columns = RUN.sub(lambda found: b"%d" % next(numbers), text)
        try:
            steps = orjson.loads(b"[" + text + b"]")
            refuse_deep(text)
            if canonical_json(steps) != b"[" + text.translate(None, b" ") + b"]":
                return None
            traced, plain = StepReader(), StepReader()
            traced.read(_traced(steps, orjson.loads(b"[" + columns + b"]")))
            plain.read(steps)
        except (orjson.JSONDecodeError, BadLine):
            return None
        if not traced.linear or list(traced.decisions) != list(plain.decisions):
            return None
        variant = cls(traced, reader.sketch(plain), text)
        runs = Runs([text])
        mask, *places = variant.pattern.find(runs, np.zeros(1, dtype=np.intp))
        decided = variant.decided(*runs.values(*places))
        understood = mask.all() and decided.small.all()
        return variant if understood and decided.matrix[0].tolist() == plain.decisions else None

    def follow(self, runs: Runs) -> tuple[NDArray[np.bool_], Decided]:
        """Rows of this variant among all texts, and their decisions.

        Faster than finding the variant if most texts are of it, but may miss some.
        """
        mask, values, small = self.pattern.follow(runs)
        return mask, self._decided(values, small)

    def decided(self, values: NDArray[np.int64], good: NDArray[np.bool_]) -> Decided:
        """Decisions of texts of this variant, from the values of their free runs."""
        return self._decided(*self.pattern.numbers(values, good))

    def _decided(self, values: NDArray[np.int64], small: NDArray[np.bool_]) -> Decided:
        constants = np.broadcast_to(self._constants, (len(values), len(self._constants)))
        numbers = np.concatenate([values.T, constants.T])
        decisions = self._decisions.of(numbers)
        if self._splits.groups:
            decisions[self._splits.outermost] = self._splits.outer(numbers, small)
        matrix, loops = decisions.T.copy(), self._extents.of(numbers).T.copy()
        return Decided(matrix, small, loops)


def _traced(steps: Any, columns: Any) -> Any:
    """Turn numbers of steps into ``DigitRun``; ``columns`` has the numbers of the runs.

    Raises ``BadLine`` if a step holds anything but integers, words and lists of these.
    """
    if type(steps) is int:
        return DigitRun(steps, abs(columns))
    if isinstance(steps, list):
        return [_traced(*both) for both in zip(steps, columns, strict=True)]
    if isinstance(steps, str):
        word = TracedText(steps)
        word.columns = columns
        return word
    if steps is None:
        return None
    raise BadLine("an item of a step is not an integer, word or list")
