"""Texts that differ in their numbers only, read as a matrix of numbers.

A tuner writes millions of lines of which only few numbers differ. Texts with the same bytes
between their runs of digits are read together: one pass of array operations finds all runs and
their values, several times faster than a JSON parser, and proves at the same time that every
text has the structure of the one that was parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DIGITS = b"0123456789"
BATCH = 256
"""Texts read at once: few enough to stay in a core's cache."""
_MAX_DIGITS = 18


class RunsPattern:
    """Where the runs of digits lie in a text, and what stands between them.

    ``count`` is the number of runs, ``negative`` marks those with a minus sign before them.
    """

    def __init__(self, text: bytes) -> None:
        bounds = _bounds(np.frombuffer(text + b"\n", dtype=np.uint8))
        self._starts, self._ends = bounds[::2], bounds[1::2]
        self._gaps = self._starts[1:] - self._ends[:-1]
        self._first = int(self._starts[0]) if len(self._starts) else 0
        self.count = len(self._starts)
        self.negative = np.array([text[s - 1 : s] == b"-" for s in self._starts], dtype=np.bool_)

    def read(self, texts: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Values of all runs: ``(len(texts), count)`` int64, and which texts were understood.

        The texts (best ``BATCH`` at a time) must have the same bytes outside their digits as the
        pattern's. A text is not understood where its runs lie elsewhere, have leading zeros, more
        than 18 digits, or say minus zero.
        """
        number = len(texts)
        none = np.zeros((number, self.count), dtype=np.int64), np.zeros(number, dtype=np.bool_)
        data = np.frombuffer(b"\n".join(texts) + b"\n", dtype=np.uint8)
        bounds = _bounds(data)
        if len(bounds) != 2 * self.count * number:
            if number == 1:
                return none
            # One text has other runs than the rest: find it by reading them one by one.
            rows = [self.read([text]) for text in texts]
            return np.concatenate([r[0] for r in rows]), np.concatenate([r[1] for r in rows])
        if not self.count:
            return none[0], np.ones(number, dtype=np.bool_)
        starts, ends = bounds[::2], bounds[1::2]
        lengths = ends - starts
        digits = data - np.uint8(48)
        values = digits[starts].astype(np.int64)
        leading_zero = (values == 0) & (lengths > 1)
        longer = np.flatnonzero(lengths > 1)
        place = 1
        while len(longer) and place < _MAX_DIGITS:
            values[longer] = values[longer] * 10 + digits[starts[longer] + place]
            place += 1
            longer = longer[lengths[longer] > place]
        bad = leading_zero
        bad[longer] = True
        shape = (number, self.count)
        values = values.reshape(shape)
        bad = bad.reshape(shape)
        if self.negative.any():
            bad |= self.negative & (values == 0)
            values = np.where(self.negative, -values, values)
        good = ~bad.any(axis=1)
        starts, ends = starts.reshape(shape), ends.reshape(shape)
        good &= (starts[:, 1:] - ends[:, :-1] == self._gaps).all(axis=1)
        sizes = np.fromiter(map(len, texts), dtype=np.int64, count=number) + 1
        begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        good &= starts[:, 0] - begins == self._first
        return values, good


def _bounds(data: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Begins and ends of the runs of digits, alternating. The last byte is no digit."""
    digit = (data - np.uint8(48)) < 10
    edges = np.flatnonzero(digit[1:] != digit[:-1])
    edges += 1
    if len(digit) and digit[0]:
        edges = np.concatenate([np.zeros(1, dtype=edges.dtype), edges])
    return edges
