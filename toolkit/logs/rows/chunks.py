"""Many rows at once → a record batch: what ``rows.Rows`` does one reading at a time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.logs.rows.base import LONGEST_S, SHORTEST_S, mean
from toolkit.logs.rows.columns import Texts, numeric, ragged, repeated
from toolkit.logs.rows.ids import candidate_numbers, candidate_seed, hex_ids
from toolkit.logs.rows.rows import SCHEMA
from toolkit.records import ERROR_NUMBER_STATES, Sketch, TrialState

_STATES = [state.value for state in TrialState]
_STATE_BYTES = [state.encode() for state in _STATES]
_OF_ERROR = np.array(
    [_STATES.index(ERROR_NUMBER_STATES[n].value) for n in range(len(ERROR_NUMBER_STATES))]
)
_UNKNOWN = _STATES.index("unknown")
_NUMBERS = {int, float}
_NEUTRAL: list[Any] = [[], 8, 0.0, 0.0]


class Words(NamedTuple):
    """A word a row: the different ones, and each row's number among them."""

    different: Sequence[str]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, words: Sequence[str]) -> Words:
        """Words of rows."""
        if words.count(words[0]) == len(words):
            return cls(words[:1], np.zeros(len(words), dtype=np.int64))
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(word, len(numbers)) for word in words]
        return cls(list(numbers), np.array(codes, dtype=np.int64))

    def coded(self) -> list[bytes]:
        """The rows' words as UTF-8."""
        coded = [word.encode() for word in self.different]
        if len(coded) == 1:
            return coded * len(self.codes)
        return [coded[code] for code in self.codes.tolist()]

    def column(self) -> Any:
        """The rows' words as a string column."""
        if len(self.different) == 1:
            return repeated(self.different[0], len(self.codes))
        return Texts.of(self.coded()).column()


class Candidates:
    """What many rows chose: sketches, and decisions one after the other.

    Parameters
    ----------
    tasks
        Of each row.
    sizes
        How many decisions each row has.
    """

    def __init__(self, tasks: Words, sizes: NDArray[np.int64]) -> None:
        self.tasks, self.sizes = tasks, sizes
        self.flat = np.zeros(int(sizes.sum()), dtype=np.int64)
        self._begins = np.cumsum(sizes) - sizes
        self._numbers = np.zeros(len(sizes), dtype=np.uint64)
        self._sketches: list[str] = []
        self._codes = np.zeros(len(sizes), dtype=np.int64)

    def put(self, rows: NDArray[np.intp], sketch: Sketch, decisions: NDArray[np.int64]) -> None:
        """Enter the decisions ``(rows, parts)`` of rows that share a sketch."""
        places = self._begins[rows][:, None] + np.arange(decisions.shape[1])
        self.flat[places] = decisions
        self._codes[rows] = len(self._sketches)
        self._sketches.append(sketch.sketch_id)
        codes = self.tasks.codes[rows]
        seeds = np.zeros(len(self.tasks.different), dtype=np.uint64)
        for code in np.unique(codes).tolist():
            seeds[code] = candidate_seed(self.tasks.different[code], sketch.sketch_id)
        self._numbers[rows] = candidate_numbers(seeds[codes], sketch, decisions)

    def columns(self) -> dict[str, Any]:
        """The columns of a chunk that say what was chosen."""
        return {
            "candidate_id": hex_ids(self._numbers),
            "sketch_id": Words(self._sketches, self._codes).column(),
            "decisions": ragged(pa.int64(), self.flat, self.sizes),
        }


class Outcomes:
    """What many lines measured, column by column.

    Parameters
    ----------
    costs, counts
        Costs of all lines one after the other, and how many each line has.
    errors
        Error numbers, 0 to 8.
    elapsed, timestamps
        In seconds.

    Attributes
    ----------
    good
        Marks lines that are what the formats say; the others are left to the reader of single
        lines, which knows the reasons.
    """

    def __init__(
        self,
        costs: NDArray[np.float64],
        counts: NDArray[np.int64],
        errors: NDArray[np.int64],
        elapsed: NDArray[np.float64],
        timestamps: NDArray[np.float64],
    ) -> None:
        self.good = np.ones(len(counts), dtype=np.bool_)
        self.errors = errors
        # Minus zero is zero, as ``base.seconds`` reads it.
        self.elapsed, self.timestamps = elapsed + 0.0, timestamps + 0.0
        begins = np.cumsum(counts) - counts
        possible = np.zeros(len(counts), dtype=np.bool_)
        some = counts > 0
        if some.any():
            fine = (costs >= SHORTEST_S) & (costs <= LONGEST_S)
            possible[some] = np.logical_and.reduceat(fine, begins[some])
        self.ok = (errors == 0) & possible
        self.states = np.where((errors == 0) & ~self.ok, _UNKNOWN, _OF_ERROR[errors])
        self._flat, self._counts, self._begins = costs, counts, begins

    @classmethod
    def read(cls, results: Sequence[Any]) -> Outcomes:
        """Check results ``[costs, error number, elapsed, timestamp]`` together."""
        good = np.ones(len(results), dtype=np.bool_)
        columns = _columns(results)
        if columns is None:
            good = np.array([_columns([result]) is not None for result in results], dtype=np.bool_)
            results = [r if fine else _NEUTRAL for r, fine in zip(results, good, strict=True)]
            columns = tuple(zip(*results, strict=True))
        costs, errors, elapsed, timestamps = columns
        counts = np.fromiter(map(len, costs), dtype=np.int64, count=len(costs))
        outcomes = cls(
            np.fromiter(chain.from_iterable(costs), dtype=np.float64, count=counts.sum()),
            counts,
            np.array(errors, dtype=np.int64),
            np.array(elapsed, dtype=np.float64),
            np.array(timestamps, dtype=np.float64),
        )
        outcomes.good = good
        return outcomes

    def flat_run_times(
        self, rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Run times in seconds of some rows one after the other, and how many each row has."""
        sizes = np.where(self.ok[rows], self._counts[rows], 0)
        # Places in the flat list: where each row begins, and on from there.
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._flat[np.repeat(self._begins[rows], sizes) + within], sizes


def _columns(results: Sequence[Any]) -> tuple[Any, ...] | None:
    """Results column by column; ``None`` where not all have the types that they should have."""
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


def make_chunk(
    *,
    format: str,
    lines: NDArray[np.int64],
    candidates: Candidates,
    schedules: Texts,
    versions: Words,
    outcomes: Outcomes,
    rows: NDArray[np.intp],
    tvm_versions: Sequence[str | None] | None = None,
    hashes: Sequence[Any] | None = None,
    costs_only: bool = False,
) -> Any:
    """Make a record batch of ``rows.SCHEMA``.

    All sequences but ``outcomes`` have one item a row; ``rows`` says which of the outcomes they
    belong to. ``hashes`` are record ids begun, of task id and schedule. With ``costs_only`` the
    format tells neither error number nor times of the measurement.
    """
    count = len(lines)
    errors = outcomes.errors[rows]
    elapsed, timestamps = outcomes.elapsed[rows], outcomes.timestamps[rows]
    flat, sizes = outcomes.flat_run_times(rows)
    if costs_only:
        errors = np.full(count, -1, dtype=np.int64)
        elapsed = timestamps = np.full(count, np.nan)
    measured = _outcome_bytes(
        outcomes.states[rows], errors, elapsed, timestamps, flat, sizes, schedules.sizes
    )
    told = np.full(count, not costs_only)
    columns: dict[str, Any] = {
        **candidates.columns(),
        "record_id": _record_ids(candidates.tasks, schedules, measured, hashes),
        "task_id": candidates.tasks.column(),
        "line": numeric(pa.int64(), lines),
        "format": repeated(format, count),
        "format_version": versions.column(),
        "tvm_version": pa.nulls(count, pa.string())
        if tvm_versions is None
        else pa.array(tvm_versions, pa.string()),
        "schedule": schedules.column(),
        "state": _coded(outcomes.states[rows]),
        "error_number": numeric(pa.int32(), errors.astype(np.int32), told),
        "run_times_s": ragged(pa.float64(), flat, sizes),
        "latency_s": _means(flat, sizes),
        "elapsed_s": numeric(pa.float64(), elapsed, told),
        "timestamp": numeric(pa.float64(), timestamps, told),
    }
    return pa.record_batch([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def _record_ids(
    tasks: Words,
    schedules: Texts,
    measured: Sequence[bytes],
    hashes: Sequence[Any] | None,
) -> Any:
    """``base.record_id`` of many records."""
    digests = []
    if hashes is None:
        begun = [blake2b(word.encode(), digest_size=8).copy for word in tasks.different]
        codes, bounds = tasks.codes.tolist(), schedules.bounds()
        text = memoryview(schedules.data)
        for code, begin, end, outcome in zip(codes, bounds, bounds[1:], measured, strict=False):
            one = begun[code]()
            one.update(text[begin:end])
            one.update(outcome)
            digests.append(one.digest())
    else:
        for one, outcome in zip(hashes, measured, strict=True):
            one.update(outcome)
            digests.append(one.digest())
    return hex_ids(np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64))


def _coded(states: NDArray[np.int64]) -> Any:
    """States as a string column."""
    first = int(states[0])
    if (states == first).all():
        return repeated(_STATES[first], len(states))
    return Texts.of([_STATE_BYTES[state] for state in states.tolist()]).column()


def _means(flat: NDArray[np.float64], sizes: NDArray[np.int64]) -> Any:
    """Arithmetic means of rows, null where a row is empty; as ``base.mean`` rounds them."""
    values = np.zeros(len(sizes), dtype=np.float64)
    begins = np.cumsum(sizes) - sizes
    single = sizes == 1
    values[single] = flat[begins[single]]
    for row in np.flatnonzero(sizes > 1).tolist():
        values[row] = mean(flat[begins[row] : begins[row] + sizes[row]].tolist())
    return numeric(pa.float64(), values, sizes > 0)


def _outcome_bytes(
    states: NDArray[np.int64],
    errors: NDArray[np.int64],
    elapsed: NDArray[np.float64],
    timestamps: NDArray[np.float64],
    flat: NDArray[np.float64],
    sizes: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> list[bytes]:
    """What ``base.record_id`` hashes behind the schedules, which have these lengths."""
    count, width = len(states), int(sizes.max(initial=0))
    rows = np.zeros((count, 5 + width), dtype="<i8")
    rows[:, 0], rows[:, 1] = states, errors
    rows[:, 2], rows[:, 3] = elapsed.view(np.int64), timestamps.view(np.int64)
    times = flat.astype("<f8").view(np.int64)
    if (sizes == width).all():
        rows[:, 4:-1], rows[:, -1] = times.reshape(count, width), lengths
        whole: list[bytes] = rows.view(f"V{8 * (5 + width)}").ravel().tolist()
        return whole
    rows[np.arange(count), 4 + sizes] = lengths
    ends = np.cumsum(sizes)
    within = np.arange(len(times)) - np.repeat(ends - sizes, sizes)
    rows[np.repeat(np.arange(count), sizes), 4 + within] = times
    told, step = rows.tobytes(), 8 * (5 + width)
    stops = (step * np.arange(count) + 8 * (5 + sizes)).tolist()
    return [told[step * row : stop] for row, stop in enumerate(stops)]
