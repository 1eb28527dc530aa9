"""Read texts that differ only in some of their numbers as a matrix of numbers.

A tuner writes millions of lines, and only few of their numbers differ. One pass of array operations
finds all runs of digits in many texts. A pattern is one parsed text in which some runs are free. It
compares the bytes between the free runs with other texts, 32 bytes at a time, and reads the free
runs as numbers, eight digits at a time. This is several times faster than a JSON parser, and proves
that a text has the structure of the parsed one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

RUN = re.compile(rb"[0-9]+")
MAX_DIGITS = 18
_WORD = 32
_FACTORS, _BITS = (10, 100, 10_000), (8, 16, 32)
_KEPT = (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF)
_JOINTS = np.array([_FACTORS, _BITS, _KEPT], dtype=np.uint64).T
_ZEROS = np.uint64(0x3030303030303030)
_OVER = np.uint64(0x7676767676767676)
_ONES = np.uint64(0x0101010101010101)
_COUNTS = np.uint64(sum(digits << (61 - 8 * digits) for digits in range(8)))
"""Shifted left by n bytes, its upper three bits are n."""
_PARSED = 8
"""Number of digits that are parsed at once."""
_PADDING = bytes(_WORD)


class Runs:
    """Texts without newlines, and the positions of their runs of digits.

    ``joined`` holds the texts one after the other, each with a newline after it, and zero bytes at
    the end. ``begins`` and ``ends`` are the positions of each text in it.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.joined = b"\n".join((*texts, _PADDING))
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        self.ends = np.cumsum(lengths + 1) - 1
        self.begins = self.ends - lengths
        last = len(self.joined)
        # Views: the (overlapping) words that begin at each byte.
        self._words = np.ndarray((last - _WORD,), f"V{_WORD}", self.joined, 0, (1,))
        self._digits = np.ndarray((last - _PARSED,), "<u8", self.joined, 0, (1,))

    def __len__(self) -> int:
        return len(self.begins)

    @cached_property
    def _bounds(self) -> NDArray[np.intp]:
        """Begins and ends of the runs of digits, alternating. (The last byte is no digit.)"""
        digit = (np.frombuffer(self.joined, dtype=np.uint8) - np.uint8(48)) < 10
        edges = np.flatnonzero(digit[1:] != digit[:-1])
        edges += 1
        return np.concatenate([np.zeros(1, dtype=edges.dtype), edges]) if digit[0] else edges

    @cached_property
    def _first(self) -> NDArray[np.intp]:
        return np.searchsorted(self._bounds, self.begins)

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        return np.diff(self._first, append=len(self._bounds)) // 2

    def places(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Starts and stops of some runs of some texts, each ``(rows, columns)``."""
        which = self._first[rows][:, None] + 2 * columns
        return self._bounds.take(which), self._bounds.take(which + 1)

    def words(self, places: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Words at some positions: ``(rows, 4 * columns)`` for ``(rows, columns)`` places."""
        words: NDArray[np.uint64] = self._words[places].view("<u8")
        return words

    def values(
        self, starts: NDArray[np.intp], stops: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Values of runs, and which are valid: no leading zeros, at most 18 digits."""
        lengths = stops - starts
        head = self._digits[starts]
        good = (lengths == 1) | ((head & np.uint64(0xFF)) != ord("0"))
        sizes = np.minimum(lengths, _PARSED)
        # Shift the digits to the upper end.
        part = (head << (64 - 8 * sizes).astype(np.uint64)) & np.uint64(0x0F0F0F0F0F0F0F0F)
        values = _joined_digits(part).view(np.int64)
        for at in zip(*np.nonzero(lengths > _PARSED), strict=True):
            start, stop = int(starts[at]), int(stops[at])
            good[at] &= stop - start <= MAX_DIGITS
            if good[at]:
                values[at] = int(self.joined[start:stop])
        return values, good

    def follow(self, places: NDArray[np.intp]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Read the run that begins at each place, and move the places to its end.

        Also returns which are good: a place without a run is not, nor is a run of more than seven
        digits or with leading zeros.
        """
        np.minimum(places, len(self.joined) - _PARSED - 1, out=places)
        part = self._digits[places]
        part ^= _ZEROS
        # A bit for each byte that is no digit; the lowest one gives the number of digits before it.
        sizes = part + _OVER
        sizes |= part
        sizes >>= np.uint64(7)
        sizes &= _ONES
        sizes &= np.negative(sizes)
        sizes *= _COUNTS
        sizes >>= np.uint64(61)
        good = sizes > 0
        zero = part.view(np.uint8)[::_PARSED] == 0
        if zero.any():
            good &= ~zero | (sizes == 1)
        places += sizes.view(np.int64)
        sizes <<= np.uint64(3)
        part <<= np.subtract(np.uint64(64), sizes, out=sizes)
        return _joined_digits(part), good


class Pattern:
    """A text in which the runs of digits numbered ``columns`` (ascending) are free."""

    def __init__(self, text: bytes, columns: Sequence[int]) -> None:
        spans = [found.span() for found in RUN.finditer(text)]
        self._columns = np.array(columns, dtype=np.intp)
        signs = [text[max(spans[column][0] - 1, 0) : spans[column][0]] for column in columns]
        self._negative = np.array([sign == b"-" for sign in signs], dtype=np.bool_)
        edges = [0, *(edge for column in columns for edge in spans[column]), len(text)]
        fixed = [text[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True)]
        self._lengths = np.array([len(part) for part in fixed], dtype=np.int64)
        words = [
            (number, offset, part[offset : offset + _WORD])
            for number, part in enumerate(fixed)
            for offset in range(0, len(part), _WORD)
        ]
        self._of_word = np.array([number for number, _, _ in words], dtype=np.intp)
        self._offsets = np.array([offset for _, offset, _ in words], dtype=np.intp)
        self._words = _as_words([word for _, _, word in words])
        self._masks = _as_words([b"\xff" * len(word) for _, _, word in words])

    def find(
        self, runs: Runs, rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp], NDArray[np.intp]]:
        """Find the texts that differ only in the free runs; ``rows`` must have as many runs.

        Returns a mask of the rows; for the rows found, starts and stops of their free runs,
        ``(texts, columns)``.
        """
        starts, stops = runs.places(rows, self._columns)
        after = np.concatenate([runs.begins[rows][:, None], stops], axis=1)
        before = np.concatenate([starts, runs.ends[rows][:, None]], axis=1)
        mask = _whole_rows(before - after == self._lengths)
        if not mask.all():
            starts, stops, after = starts[mask], stops[mask], after[mask]
        same = self._same(runs, after)
        if not same.all():
            starts, stops = starts[same], stops[same]
            mask[np.flatnonzero(mask)[~same]] = False
        return mask, starts, stops

    def numbers(
        self, values: NDArray[np.int64], good: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Numbers of texts from the values of their free runs and which of these are valid.

        Both are ``(texts, columns)``. Also returns whether all of a text's numbers are valid (minus
        zero is not).
        """
        return self._signed(values, _whole_rows(good))

    def follow(self, runs: Runs) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.bool_]]:
        """Like ``read`` for all texts, without a search for their runs.

        Each text is followed from one free run to the next as if it had this pattern. This is
        several times faster if most texts have it. Texts with a number that is not plain or has
        more than seven digits are not found.
        """
        after = np.empty((len(runs), len(self._lengths)), dtype=np.intp)
        values = np.empty((len(self._lengths) - 1, len(runs)), dtype=np.int64).T
        places, mask = runs.begins.copy(), np.ones(len(runs), dtype=np.bool_)
        for column, length in enumerate(self._lengths[:-1].tolist()):
            after[:, column] = places
            places += length
            numbers, good = runs.follow(places)
            values[:, column] = numbers
            mask &= good
        after[:, -1] = places
        mask &= places + self._lengths[-1] == runs.ends
        if not mask.all():
            after, values = after[mask], values[mask]
        same = self._same(runs, after)
        if not same.all():
            values = values[same]
            mask[np.flatnonzero(mask)[~same]] = False
        return mask, *self._signed(values, np.ones(len(values), dtype=np.bool_))

    def _same(self, runs: Runs, after: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which texts have the pattern's bytes at these places, ``(texts, fixed parts)``."""
        places = after.take(self._of_word, axis=1)
        places += self._offsets
        words = runs.words(places)
        words ^= self._words
        words &= self._masks
        if not words.any():
            return np.ones(len(words), dtype=np.bool_)
        return ~np.asarray(words.any(axis=1))

    def _signed(
        self, values: NDArray[np.int64], good: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Numbers with their signs; minus zero is not valid."""
        if self._negative.any():
            good = good & ((values != 0) | ~self._negative).all(axis=1)
            values = np.where(self._negative, -values, values)
        return values, good


def _joined_digits(part: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Join digits, one per byte, to numbers in place: neighbours, then pairs, then quadruples."""
    for factor, bits, kept in _JOINTS:
        upper = part >> bits
        part *= factor
        part += upper
        part &= kept
    return part


def _as_words(parts: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(part.ljust(_WORD, b"\0") for part in parts), dtype="<u8")


def _whole_rows(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are all true. Usually every row is, and that case is ten times faster."""
    if mask.all():
        return np.ones(len(mask), dtype=np.bool_)
    return np.asarray(mask.all(axis=1))
