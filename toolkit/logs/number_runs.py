"""Texts that differ in their numbers only, read as a matrix of numbers.

A tuner writes millions of lines of which only few numbers differ. Texts with the same bytes
between their runs of digits are read together: one pass of array operations finds all runs and
their values, several times faster than a JSON parser, and proves at the same time that every
text has the structure of the one that was parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DIGITS = b"0123456789"
BATCH = 1024
"""Texts read at once: few enough to stay in a core's cache, many enough for NumPy."""
_MAX_DIGITS = 18
_MAX_FLOAT_BYTES = 40


class Texts:
    """Texts one after the other, each with a newline behind it.

    ``bounds`` says where each begins, and where the last one ends.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._take(b"\n".join(texts))

    @classmethod
    def joined(cls, texts: bytes) -> Texts:
        """Texts that stand one after the other already, a newline between each two."""
        made = cls.__new__(cls)
        made._take(texts)
        return made

    def _take(self, texts: bytes) -> None:
        self.whole = texts + b"\n"
        self.data = np.frombuffer(self.whole, dtype=np.uint8)
        ends = np.flatnonzero(self.data == 10)
        self.bounds = np.zeros(len(ends) + 1, dtype=np.int64)
        self.bounds[1:] = ends + 1

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def text(self, place: int) -> bytes:
        """One of the texts."""
        return self.whole[self.bounds[place] : self.bounds[place + 1] - 1]


class Runs(NamedTuple):
    """The runs of digits of those texts that have the structure of a pattern.

    ``data`` holds all texts, ``order`` are the places of those that have it, ``begins`` (texts)
    says where each begins, ``starts`` and ``ends`` (texts, runs) where its runs lie.
    """

    data: NDArray[np.uint8]
    order: NDArray[np.intp]
    begins: NDArray[np.int64]
    starts: NDArray[np.intp]
    ends: NDArray[np.intp]

    def values(
        self, columns: NDArray[np.intp], negative: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Values of some runs: ``(texts, columns)`` int64, and which texts were understood.

        A text is not understood where a run has leading zeros or more than 18 digits, or says
        minus zero.
        """
        shape = len(self.starts), len(columns)
        starts = self.starts.take(columns, axis=1).ravel()
        lengths = self.ends.take(columns, axis=1).ravel() - starts
        digits = self.data - np.uint8(48)
        values = digits[starts].astype(np.int64)
        longer = np.flatnonzero(lengths > 1)
        bad = longer[values[longer] == 0]
        place = 1
        while len(longer) and place < _MAX_DIGITS:
            values[longer] = values[longer] * 10 + digits[starts[longer] + place]
            place += 1
            longer = longer[lengths[longer] > place]
        good = np.ones(shape, dtype=np.bool_)
        good.ravel()[bad] = False
        good.ravel()[longer] = False
        found = values.reshape(shape)
        if negative.any():
            good &= np.logical_or(found != 0, ~negative)
            found = found * np.where(negative, -1, 1)
        return found, _whole_rows(good)

    def some(self, rows: NDArray[np.intp]) -> Runs:
        """The runs of some of the texts."""
        if len(rows) == len(self.order):
            return self
        return Runs(self.data, *(part[rows] for part in self[1:]))

    def behind(self, column: int) -> Runs:
        """Without the runs before a column."""
        return self._replace(starts=self.starts[:, column:], ends=self.ends[:, column:])

    def numbers(
        self, first: NDArray[np.intp], last: NDArray[np.intp], signs: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Decimal numbers that reach from one run to another: ``(texts, numbers)`` float64.

        Correctly rounded, as JSON parsers read them. ``signs`` is 1 where a minus stands before a
        number. A text is not understood where an integer part has leading zeros, or a number has
        no finite value or more than 40 bytes.
        """
        starts, ends = self.starts[:, first], self.ends[:, last]
        if not starts.size:
            return np.zeros(starts.shape), np.ones(len(starts), dtype=np.bool_)
        zeros = (self.data[starts] == 48) & (self.ends[:, first] - starts > 1)
        good = ~zeros.any(axis=1) & (ends - starts < _MAX_FLOAT_BYTES).all(axis=1)
        starts = starts - signs
        count = starts.size
        # Texts and what stands between them in turn: slices of one buffer, nothing is copied.
        bounds = np.empty(2 * count, dtype=np.int32)
        bounds[::2], bounds[1::2] = starts.ravel(), ends.ravel()
        slices = pa.StringArray.from_buffers(
            2 * count - 1, pa.py_buffer(bounds), pa.py_buffer(self.data)
        )
        each = pa.py_buffer(np.arange(0, 2 * count, 2))
        # (``pyarrow.array`` would look for pandas at every call.)
        texts = slices.take(pa.Array.from_buffers(pa.int64(), count, [None, each]))
        try:
            values = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:  # one of them is beyond any float
            return np.zeros(starts.shape), np.zeros(len(starts), dtype=np.bool_)
        numbers = values.reshape(starts.shape)
        return numbers, good & np.isfinite(numbers).all(axis=1)


class RunsPattern:
    """Where the runs of digits lie in a text, and what stands between them.

    ``count`` is the number of runs, ``negative`` marks those with a minus sign before them,
    ``starts`` and ``ends`` say where they lie in that text.
    """

    def __init__(self, text: bytes) -> None:
        self.data = np.frombuffer(text + b"\n", dtype=np.uint8)
        bounds = _bounds(self.data)
        self.starts, self.ends = bounds[::2], bounds[1::2]
        self._gaps = self.starts[1:] - self.ends[:-1]
        self._first = int(self.starts[0]) if len(self.starts) else 0
        self.count = len(self.starts)
        self.negative = np.array([text[s - 1 : s] == b"-" for s in self.starts], dtype=np.bool_)

    def find(self, texts: Texts, begin: int = 0) -> Runs:
        """The runs of those of ``BATCH`` texts from a place on that have this structure.

        The texts must have the same bytes outside their digits as the pattern's.
        """
        stops = texts.bounds[begin : begin + BATCH + 1]
        order = np.arange(begin, begin + len(stops) - 1)
        bounds = _bounds(texts.data[stops[0] : stops[-1]]) + stops[0]
        if len(bounds) != 2 * self.count * len(order):
            # Some texts have other runs than the rest: find them one by one.
            pairs = zip(stops[:-1].tolist(), stops[1:].tolist(), strict=True)
            each = [_bounds(texts.data[first:last]) + first for first, last in pairs]
            kept = [place for place, found in enumerate(each) if len(found) == 2 * self.count]
            bounds = np.concatenate([np.zeros(0, np.intp), *(each[place] for place in kept)])
            order = order[kept]
        shape = len(order), self.count
        starts, ends = bounds[::2].reshape(shape), bounds[1::2].reshape(shape)
        runs = Runs(texts.data, order, texts.bounds[order], starts, ends)
        if not self.count:
            return runs
        good = _whole_rows(starts[:, 1:] - ends[:, :-1] == self._gaps)
        good &= starts[:, 0] - runs.begins == self._first
        return runs if good.all() else runs.some(np.flatnonzero(good))

    def read(self, texts: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Values of all runs: ``(len(texts), count)`` int64, and which texts were understood."""
        values = np.zeros((len(texts), self.count), dtype=np.int64)
        good = np.zeros(len(texts), dtype=np.bool_)
        together = Texts(texts)
        columns = np.arange(self.count)
        for begin in range(0, len(texts), BATCH):
            runs = self.find(together, begin)
            values[runs.order], good[runs.order] = runs.values(columns, self.negative)
        return values, good


class FixedRuns:
    """Some runs of a pattern's text, to be found again digit by digit in other texts."""

    def __init__(self, pattern: RunsPattern, columns: NDArray[np.intp], before: int = 0) -> None:
        """``before`` runs are left out where they will be looked for (``Runs.behind``)."""
        self._lengths = pattern.ends[columns] - pattern.starts[columns]
        of_digit = np.repeat(columns, self._lengths)
        self._columns, self._of_digit = columns - before, of_digit - before
        within = np.cumsum(self._lengths) - self._lengths
        self._places = np.arange(len(of_digit)) - np.repeat(within, self._lengths)
        self._digits = pattern.data[pattern.starts[of_digit] + self._places]

    def matches(self, runs: Runs) -> NDArray[np.bool_]:
        """Which texts have the same digits in these runs."""
        lengths = runs.ends.take(self._columns, axis=1) - runs.starts.take(self._columns, axis=1)
        same = _whole_rows(lengths == self._lengths)
        # Behind a shorter run the place may lie behind the data.
        places = runs.starts.take(self._of_digit, axis=1) + self._places
        same &= _whole_rows(runs.data.take(places, mode="clip") == self._digits)
        return same


def _whole_rows(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are true throughout; as a rule all are, which is found ten times as fast."""
    if mask.all():
        return np.ones(len(mask), dtype=np.bool_)
    return np.asarray(mask.all(axis=1))


def _bounds(data: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Begins and ends of the runs of digits, alternating. The last byte is no digit."""
    digit = (data - np.uint8(48)) < 10
    edges = np.flatnonzero(digit[1:] != digit[:-1])
    edges += 1
    if len(digit) and digit[0]:
        edges = np.concatenate([np.zeros(1, dtype=edges.dtype), edges])
    return edges
