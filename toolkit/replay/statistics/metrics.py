"""Metrics of one replayed run, from its measured occasions.

Everything is measured in *recorded values*: a candidate's value is the median over its ok
occasions, the best recorded value of the task is the reference. The readings that a run saw (one
drawn occasion per candidate) only decide which candidate it would have chosen (``incumbent``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolkit.replay.record.table import RecordedTable
from toolkit.search.moves.knobs import FloatArray, IntArray

THRESHOLDS = (0.01, 0.05, 0.10)
NAMES = ("1pct", "5pct", "10pct")


@dataclass(frozen=True)
class Replayed:
    """One run in arrays, one entry per evaluation."""

    candidate: IntArray  # number of the candidate in the task's table
    state: IntArray  # number of the trial's state in ``STATES``
    latency_s: FloatArray  # what was seen: the drawn occasion's latency, NaN for a failure
    value_s: FloatArray  # the candidate's recorded value, NaN where this evaluation failed
    clock_s: FloatArray  # when the evaluation ended
    missed_at: IntArray  # for each unrecorded proposal the number of evaluations before it
    proposals: int
    substituted: int
    budget: int  # evaluations that the run could have spent (it may have stopped before)
    stopped: str

    def best_s(self) -> FloatArray:
        """Lowest value measured so far, NaN before the first success."""
        return np.asarray(np.fmin.accumulate(self.value_s))


def area_under_curve(run: Replayed, best_s: float) -> float:
    """Mean of best recorded over best so far, over all evaluations of the budget (0 to 1).

    0 before the first success; after the end of a run its last value. Higher is better.
    """
    relative = np.nan_to_num(best_s / run.best_s(), nan=0.0)[: run.budget]
    if not len(relative):
        return 0.0
    rest = run.budget - len(relative)
    return float((relative.sum() + rest * relative[-1]) / run.budget)


def improvements(run: Replayed, unit: str) -> tuple[FloatArray, FloatArray]:
    """Evaluations or seconds at which the best value improved, in order, and the new values."""
    order, at = np.arange(len(run.clock_s)), np.arange(1.0, len(run.clock_s) + 1)
    if unit == "seconds":
        # With several measuring workers trials of a batch may end out of order.
        order = np.argsort(run.clock_s, kind="stable")
        at = run.clock_s[order]
    best = np.fmin.accumulate(run.value_s[order])
    better = np.isfinite(best) & ~(best >= np.r_[np.inf, best[:-1]])
    return at[better], best[better]


def relative_at(
    run: Replayed, best_s: float | None, unit: str, grid: Sequence[float]
) -> list[float]:
    """Best recorded over best so far (0 to 1) at points of a grid of evaluations or seconds.

    0 before the first success; after the end of a run its last value.
    """
    at, values = improvements(run, unit)
    relative = np.r_[0.0, (best_s or np.nan) / values]
    found: list[float] = relative[np.searchsorted(at, grid, side="right")].tolist()
    return found


def time_ratio(
    steps: Mapping[str, Sequence[float]], baseline: Mapping[str, Sequence[float]]
) -> float:
    """S = T / T0 (Han et al. 2025, section 5) of ``improvements`` in seconds: lower is better.

    T0 is when the baseline reached its best, T when the other run reached the same throughput;
    infinite when it never did, or when the baseline never succeeded.
    """
    if not baseline["values"]:
        return float("inf")
    pairs = zip(steps["values"], steps["seconds"], strict=True)
    reached = (seconds for value, seconds in pairs if value <= baseline["values"][-1])
    return next(reached, float("inf")) / baseline["seconds"][-1]


def run_metrics(table: RecordedTable, run: Replayed) -> dict[str, float | int | str | None]:
    """Compute the metrics of one run.

    ``evaluations_to_*`` and ``seconds_to_*`` are ``None`` if the run did not reach the goal: it is
    censored at its budget. The bounds are the evaluations to 1 % if every unrecorded proposal had
    been the best candidate (the first one would have reached the goal), or the worst (each one
    before the goal would have cost an evaluation); ``None`` if the goal is not reached even then.
    """
    best, missed = table.best_s, run.missed_at
    seen_any = np.isfinite(run.latency_s).any()
    out: dict[str, float | int | str | None] = {
        "evaluations": len(run.candidate),
        "seconds": float(run.clock_s.max(initial=0.0)),
        "budget": run.budget,
        "proposals": run.proposals,
        "missed": len(missed),
        "substituted": run.substituted,
        "failures": int(np.isnan(run.latency_s).sum()),
        "stopped": run.stopped,
        # A proposal that another candidate answered for was not recorded either.
        "coverage": 1.0 - (len(missed) + run.substituted) / max(run.proposals, 1),
    }
    if best is None:
        return out
    for share, name in zip(THRESHOLDS, NAMES, strict=True):
        hits = np.flatnonzero(run.value_s <= best * (1.0 + share))
        at = int(hits[0]) if len(hits) else None
        out[f"evaluations_to_{name}"] = None if at is None else at + 1
        out[f"seconds_to_{name}"] = None if at is None else float(run.clock_s[at])
        if name == "1pct":
            goals = [int(first) + 1 for first in (*hits[:1], *missed[:1])]
            out["lower_bound_to_1pct"] = min(goals, default=None)
            worst = None if at is None else at + 1 + int((missed < at + 1).sum())
            out["upper_bound_to_1pct"] = worst
    out["auc"] = area_under_curve(run, best)
    out["best_s"] = float(np.fmin.reduce(run.value_s)) if seen_any else None
    # The candidate that looked best: the run would have chosen it.
    shipped = float(run.value_s[np.nanargmin(run.latency_s)]) if seen_any else None
    out["incumbent_regret"] = None if shipped is None else shipped / best - 1.0
    return out
