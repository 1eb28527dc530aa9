"""What many rows chose and what they measured, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.logs.rows.base import LONGEST_S, SHORTEST_S, Reading
from toolkit.logs.rows.columns import Words, candidate_numbers, candidate_seed, hex_ids, ragged
from toolkit.records import ERROR_NUMBER_STATES, Sketch, TrialState

STATES = tuple(TrialState)
"""A state's place is its code, which record ids hash."""
_CODES = {state: code for code, state in enumerate(STATES)}
_OF_ERROR = np.array([_CODES[ERROR_NUMBER_STATES[n]] for n in range(len(ERROR_NUMBER_STATES))])
_NUMBERS = {int, float}
_NEUTRAL: list[Any] = [[], 8, 0.0, 0.0]


class Candidates:
    """What many rows chose: sketches, and decisions one after the other.

    ``tasks`` are those of each row, ``sizes`` say how many decisions each has.
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
            "task_id": self.tasks.column(),
            "candidate_id": hex_ids(self._numbers),
            "sketch_id": Words(self._sketches, self._codes).column(),
            "decisions": ragged(pa.int64(), self.flat, self.sizes),
        }


class Outcomes(NamedTuple):
    """What many rows measured.

    ``states`` are places in ``STATES``; ``errors`` are -1, elapsed times and timestamps (seconds)
    NaN where a log tells none. ``flat`` has the run times in seconds of all rows one after the
    other, ``sizes`` how many each row has: only rows that are ok have any.
    """

    states: NDArray[np.int64]
    errors: NDArray[np.int64]
    elapsed: NDArray[np.float64]
    timestamps: NDArray[np.float64]
    flat: NDArray[np.float64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Outcomes:
        """Outcomes of readings."""
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
        """As ``of_results``, where a format tells costs alone."""
        outcomes, good = cls.of_results([[cost, 0, 0.0, 0.0] for cost in costs])
        untold = np.full(len(costs), np.nan)
        errors = np.full(len(costs), -1, dtype=np.int64)
        return outcomes._replace(errors=errors, elapsed=untold, timestamps=untold), good

    @classmethod
    def of_results(cls, results: Sequence[Any]) -> tuple[Outcomes, NDArray[np.bool_]]:
        """Check results ``[costs, error number, elapsed, timestamp]`` together.

        Also marks those that are what the formats say: all others are left to the reader of
        single lines, which knows the reasons.
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
        """What some of the rows measured."""
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
