"""Columns of many rows: Arrow arrays made from buffers, decisions, and outcomes.

``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy`` are not used: they look for pandas at every
call, which takes longer than a small column, and import it if it is installed, which takes longer
than reading a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.logs.rows.base import LONGEST_S, SHORTEST_S, Reading
from toolkit.records import ERROR_NUMBER_STATES, Sketch, TrialState, content_id

_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)]).view(np.uint16)
_BYTES = np.zeros(2**16, dtype=np.uint8)
_BYTES[_HEX] = np.arange(256)

STATES = tuple(TrialState)
"""The index of a state is its code, which record ids hash."""
_CODES = {state: code for code, state in enumerate(STATES)}
_OF_ERROR = np.array([_CODES[ERROR_NUMBER_STATES[n]] for n in range(len(ERROR_NUMBER_STATES))])
_NUMBERS = {int, float}
_NEUTRAL: list[Any] = [[], 8, 0.0, 0.0]


def different(values: NDArray[np.int64]) -> list[int]:
    """Distinct values of small counts, ascending (``np.unique`` would load masked arrays)."""
    found: list[int] = np.flatnonzero(np.bincount(values)).tolist()
    return found


def numeric(type: Any, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Any:
    """Make a numeric column; null where ``valid`` is false."""
    mask = None if valid is None else _bits(valid)
    buffers = [mask, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type, len(values), buffers)


def numbers(column: Any) -> NDArray[Any]:
    """Return the values of a numeric Arrow column, with 0 for null."""
    kind = np.dtype(str(column.type).replace("double", "float64"))
    if not len(column):
        return np.zeros(0, dtype=kind)
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    valid, values = column.buffers()
    found = np.frombuffer(values, dtype=kind)[column.offset : column.offset + len(column)]
    if column.null_count:
        told = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")
        found = np.where(told[column.offset : column.offset + len(column)], found, 0)
    return found


def flags(values: NDArray[np.bool_]) -> Any:
    """Make a Boolean column."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _bits(values: NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def nullable_strings(words: Sequence[str | None]) -> Any:
    """Make a string column; null where a word is ``None``."""
    texts = Texts.of([(word or "").encode() for word in words])
    told = np.array([word is not None for word in words], dtype=np.bool_)
    buffers = _offsets(texts.sizes), pa.py_buffer(texts.data), _bits(told)
    return pa.StringArray.from_buffers(len(words), *buffers)


def repeated(word: str, count: int) -> Any:
    """Make a string column of one repeated word."""
    coded = word.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(coded))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(coded * count))


def ragged(type: Any, flat: NDArray[Any], sizes: NDArray[np.int64]) -> Any:
    """Make a list column of rows with different lengths."""
    buffers = [None, _offsets(sizes)]
    return pa.Array.from_buffers(
        pa.list_(type), len(sizes), buffers, children=[numeric(type, flat)]
    )


def _offsets(sizes: NDArray[np.int64]) -> Any:
    ends = np.cumsum(sizes, dtype=np.int32)
    return pa.py_buffer(np.concatenate([np.zeros(1, dtype=np.int32), ends]))


class Texts(NamedTuple):
    """Texts of rows one after the other, and the size of each in bytes."""

    data: bytes
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Texts:
        sizes = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        return cls(b"".join(parts), sizes)

    def bounds(self) -> list[int]:
        return [0, *np.cumsum(self.sizes).tolist()]

    def some(self, rows: NDArray[np.intp]) -> Texts:
        whole, bounds = memoryview(self.data), self.bounds()
        parts = [whole[bounds[row] : bounds[row + 1]] for row in rows.tolist()]
        return Texts(b"".join(parts), self.sizes[rows])

    def column(self, type: Any = None) -> Any:
        """Make a column: of strings (the texts must be UTF-8), or of another type such as bytes."""
        buffers = [None, _offsets(self.sizes), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(type or pa.string(), len(self.sizes), buffers)


class Words(NamedTuple):
    """One word per row: the distinct words, and each row's index among them."""

    different: Sequence[str]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, words: Sequence[str]) -> Words:
        if words.count(words[0]) == len(words):
            return cls(words[:1], np.zeros(len(words), dtype=np.int64))
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(word, len(numbers)) for word in words]
        return cls(list(numbers), np.array(codes, dtype=np.int64))

    def column(self) -> Any:
        """Make a string column of the rows' words."""
        first = self.codes[0]
        if (self.codes == first).all():
            return repeated(self.different[first], len(self.codes))
        coded = [word.encode() for word in self.different]
        return Texts.of([coded[code] for code in self.codes.tolist()]).column()


@lru_cache(2**16)
def candidate_seed(task_id: str, sketch_id: str) -> int:
    """Initial state of a candidate's hash."""
    return int(content_id(task_id, sketch_id), 16)


def candidate_numbers(
    seeds: NDArray[np.uint64], chosen: Sequence[NDArray[np.int64]]
) -> NDArray[np.uint64]:
    """Return ``records.candidate_id`` of many rows, as 64-bit numbers.

    ``chosen`` has the free decisions ``(parts, rows)`` of consecutive rows, those with the most
    parts first: so each step is one operation for all rows that have it.
    """
    state = np.array(seeds, dtype=np.uint64)
    ends = np.cumsum([part.shape[1] for part in chosen]).tolist()
    columns = np.zeros((max((len(part) for part in chosen), default=0), len(state)), dtype=np.int64)
    for part, end in zip(chosen, ends, strict=True):
        columns[: len(part), end - part.shape[1] : end] = part
    for number, column in enumerate(columns.view(np.uint64)):
        count = max(end for part, end in zip(chosen, ends, strict=True) if len(part) > number)
        some = state[:count]
        some ^= column[:count]
        some *= np.uint64(0x9E3779B97F4A7C15)
        some ^= some >> np.uint64(32)
        some *= np.uint64(0xD6E8FEB86659FD93)
        some ^= some >> np.uint64(29)
    return state


def hex_ids(numbers: NDArray[np.uint64]) -> Any:
    """Turn 64-bit numbers into an Arrow array of ids with 16 hexadecimal digits."""
    count = len(numbers)
    text = _HEX[numbers.astype(">u8").view(np.uint8)]
    offsets = np.arange(0, 16 * count + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def id_numbers(ids: Any) -> NDArray[np.uint64]:
    """Turn an Arrow array of ids into 64-bit numbers; the inverse of ``hex_ids``."""
    if not len(ids):
        return np.zeros(0, dtype=np.uint64)
    if isinstance(ids, pa.ChunkedArray):
        ids = pa.concat_arrays(ids.chunks)
    text = np.frombuffer(ids.buffers()[2], dtype=np.uint16, offset=16 * ids.offset)
    return _BYTES[text[: 8 * len(ids)]].view(">u8").astype(np.uint64)


class Candidates:
    """Candidates of many rows: sketches, and decisions one after the other.

    ``tasks`` has the task of each row, ``sizes`` its number of decisions.
    """

    def __init__(self, tasks: Words, sizes: NDArray[np.int64]) -> None:
        self.tasks, self.sizes = tasks, sizes
        self.flat = np.zeros(int(sizes.sum()), dtype=np.int64)
        self._begins = np.cumsum(sizes) - sizes
        self._seeds = np.zeros(len(sizes), dtype=np.uint64)
        self._chosen: list[tuple[NDArray[np.intp], NDArray[np.int64]]] = []
        self._sketches: list[str] = []
        self._codes = np.zeros(len(sizes), dtype=np.int64)

    def put(self, rows: NDArray[np.intp], sketch: Sketch, decisions: NDArray[np.int64]) -> None:
        """Set the decisions ``(rows, parts)`` of rows that share a sketch."""
        places = self._begins[rows][:, None] + np.arange(decisions.shape[1])
        self.flat[places] = decisions
        self._codes[rows] = len(self._sketches)
        self._sketches.append(sketch.sketch_id)
        codes = self.tasks.codes[rows]
        seeds = np.zeros(len(self.tasks.different), dtype=np.uint64)
        for code in different(codes):
            seeds[code] = candidate_seed(self.tasks.different[code], sketch.sketch_id)
        self._seeds[rows] = seeds[codes]
        width = sketch.width
        free = [column for knob in sketch.knobs for column in range(width)[knob.free]]
        self._chosen.append((rows, decisions.T[free]))

    def _numbers(self) -> NDArray[np.uint64]:
        numbers = np.zeros(len(self.sizes), dtype=np.uint64)
        if self._chosen:
            ordered = sorted(self._chosen, key=lambda part: len(part[1]), reverse=True)
            rows = np.concatenate([some for some, _ in ordered])
            numbers[rows] = candidate_numbers(self._seeds[rows], [part for _, part in ordered])
        return numbers

    def columns(self) -> dict[str, Any]:
        """Return the columns of a chunk that describe candidates."""
        return {
            "task_id": self.tasks.column(),
            "candidate_id": hex_ids(self._numbers()),
            "sketch_id": Words(self._sketches, self._codes).column(),
            "decisions": ragged(pa.int64(), self.flat, self.sizes),
        }


class Outcomes(NamedTuple):
    """Outcomes of many rows.

    ``states`` are indices in ``STATES``. If a log does not give them, ``errors`` are -1, and
    elapsed times and timestamps (seconds) are NaN. ``flat`` has the run times in seconds of all
    rows one after the other, ``sizes`` the number of each row: only rows that are ok have any.
    """

    states: NDArray[np.int64]
    errors: NDArray[np.int64]
    elapsed: NDArray[np.float64]
    timestamps: NDArray[np.float64]
    flat: NDArray[np.float64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Outcomes:
        times = [reading.run_times_s for reading in readings]
        return cls(
            np.array([_CODES[reading.state] for reading in readings], dtype=np.int64),
            np.array([-1 if r.error_number is None else r.error_number for r in readings]),
            np.array([reading.elapsed_s for reading in readings], dtype=np.float64),
            np.array([reading.timestamp for reading in readings], dtype=np.float64),
            np.fromiter(chain.from_iterable(times), dtype=np.float64),
            np.fromiter(map(len, times), dtype=np.int64, count=len(times)),
        )

    @classmethod
    def of_costs(cls, costs: Sequence[Any]) -> tuple[Outcomes, NDArray[np.bool_]]:
        """Like ``of_results``, for formats that give only costs."""
        outcomes, good = cls.of_results([[cost, 0, 0.0, 0.0] for cost in costs])
        untold = np.full(len(costs), np.nan)
        errors = np.full(len(costs), -1, dtype=np.int64)
        return outcomes._replace(errors=errors, elapsed=untold, timestamps=untold), good

    @classmethod
    def of_results(cls, results: Sequence[Any]) -> tuple[Outcomes, NDArray[np.bool_]]:
        """Check results ``[costs, error number, elapsed, timestamp]`` together.

        Also returns which results are valid. The others are left to the reader of single lines,
        which gives the reasons.
        """
        good = np.ones(len(results), dtype=np.bool_)
        columns = _columns(results)
        if columns is None:
            good = np.array([_columns([result]) is not None for result in results], dtype=np.bool_)
            results = [r if fine else _NEUTRAL for r, fine in zip(results, good, strict=True)]
            columns = tuple(zip(*results, strict=True))
        costs, errors = columns[0], np.array(columns[1], dtype=np.int64)
        counts = np.fromiter(map(len, costs), dtype=np.int64, count=len(costs))
        flat = np.fromiter(chain.from_iterable(costs), dtype=np.float64, count=counts.sum())
        possible = np.zeros(len(counts), dtype=np.bool_)
        some = counts > 0
        if some.any():
            fine = (flat >= SHORTEST_S) & (flat <= LONGEST_S)
            possible[some] = np.logical_and.reduceat(fine, (np.cumsum(counts) - counts)[some])
        ok = (errors == 0) & possible
        unknown = (errors == 0) & ~possible
        return cls(
            np.where(unknown, _CODES[TrialState.UNKNOWN], _OF_ERROR[errors]),
            errors,
            # Minus zero is zero, as ``base.seconds`` reads it.
            np.array(columns[2], dtype=np.float64) + 0.0,
            np.array(columns[3], dtype=np.float64) + 0.0,
            flat[np.repeat(ok, counts)],
            np.where(ok, counts, 0),
        ), good

    def some(self, rows: NDArray[np.bool_]) -> Outcomes:
        if rows.all():
            return self
        return Outcomes(
            self.states[rows],
            self.errors[rows],
            self.elapsed[rows],
            self.timestamps[rows],
            self.flat[np.repeat(rows, self.sizes)],
            self.sizes[rows],
        )


def _columns(results: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the results by column; ``None`` if any value has a wrong type."""
    if set(map(type, results)) != {list} or set(map(len, results)) != {4}:
        return None
    costs, errors, elapsed, timestamps = columns = tuple(zip(*results, strict=True))
    plain = (
        set(map(type, costs)) == {list}
        and set(map(type, errors)) == {int}
        and min(errors) >= 0
        and max(errors) <= 8
        and set(map(type, elapsed)) <= _NUMBERS
        and set(map(type, timestamps)) <= _NUMBERS
        and set(map(type, chain.from_iterable(costs))) <= _NUMBERS
    )
    return columns if plain else None
