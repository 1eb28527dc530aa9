"""What one replayed run achieved, from the occasions that it paid for.

Everything is measured in *recorded values*: a candidate's value is the median over its ok
occasions, the best recorded value of the task is the reference. What a run saw (one drawn occasion
a candidate) decides which candidate it would have shipped (``incumbent``), never what is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolkit.replay.record.table import RecordedTable

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

THRESHOLDS = (0.01, 0.05, 0.10)
NAMES = ("1pct", "5pct", "10pct")


@dataclass(frozen=True)
class Replayed:
    """One run in arrays, one entry an evaluation.

    Attributes
    ----------
    candidate
        Number of the candidate in the task's table.
    state
        Number of the trial's state in ``TrialState``'s order.
    latency_s
        What was seen: the drawn occasion's latency, NaN for a failure.
    value_s
        The candidate's recorded value, NaN for one that never succeeded, or failed this time.
    clock_s
        When the evaluation ended.
    missed_at
        For each unrecorded proposal the number of evaluations that had been paid for before it.
    budget
        Evaluations that the run could have spent (a run may stop before).
    """

    candidate: IntArray
    state: IntArray
    latency_s: FloatArray
    value_s: FloatArray
    clock_s: FloatArray
    missed_at: IntArray
    proposals: int
    substituted: int
    budget: int
    stopped: str

    @classmethod
    def from_occasions(
        cls,
        table: RecordedTable,
        occasions: Sequence[int],
        clock_s: Sequence[float],
        *,
        missed_at: Sequence[int] = (),
        proposals: int,
        substituted: int = 0,
        budget: int,
        stopped: str,
    ) -> Replayed:
        """Look up what the occasions of a run say."""
        index = np.asarray(occasions, dtype=np.int64)
        return cls(
            candidate=table.owner[index],
            state=table.state[index],
            latency_s=table.latency_s[index],
            value_s=table.occasion_value_s[index],
            clock_s=np.asarray(clock_s, dtype=np.float64),
            missed_at=np.asarray(missed_at, dtype=np.int64),
            proposals=proposals,
            substituted=substituted,
            budget=budget,
            stopped=stopped,
        )

    def best_s(self) -> FloatArray:
        """Lowest value measured so far, NaN before the first success."""
        best: FloatArray = np.fmin.accumulate(self.value_s) if len(self.value_s) else self.value_s
        return best

    def incumbent_s(self) -> float | None:
        """Recorded value of the candidate that looked best: what the run would have shipped."""
        if not np.isfinite(self.latency_s).any():
            return None
        return float(self.value_s[int(np.nanargmin(self.latency_s))])


def first_within(values: FloatArray, best_s: float, share: float) -> int | None:
    """Index of the first value within ``share`` of the best; ``None`` when there is none."""
    with np.errstate(invalid="ignore"):
        hits = np.flatnonzero(values <= best_s * (1.0 + share))
    return int(hits[0]) if len(hits) else None


def area_under_curve(run: Replayed, best_s: float) -> float:
    """Mean of best recorded over best so far, over all evaluations of the budget (0 to 1).

    Before the first success it is 0; after a run ended it stays what it was. Higher is better.
    """
    relative = np.nan_to_num(best_s / run.best_s(), nan=0.0)[: run.budget]
    if not len(relative):
        return 0.0
    rest = run.budget - len(relative)
    return float((relative.sum() + rest * relative[-1]) / run.budget)


def relative_at(
    run: Replayed, best_s: float | None, unit: str, grid: Sequence[float]
) -> list[float]:
    """Best recorded over best so far (0 to 1) at points of a grid of evaluations or seconds.

    0 before the first success; after a run ended it stays what it was.
    """
    if best_s is None or not len(run.value_s):
        return [0.0] * len(grid)
    relative = np.nan_to_num(best_s / run.best_s(), nan=0.0)
    if unit == "evaluations":
        ends = np.arange(1, len(relative) + 1, dtype=np.float64)
    else:
        # With several measuring workers trials of a batch may end out of order.
        order = np.argsort(run.clock_s, kind="stable")
        ends = run.clock_s[order]
        best = np.fmin.accumulate(run.value_s[order])
        relative = np.nan_to_num(best_s / best, nan=0.0)
    at = np.searchsorted(ends, np.asarray(grid), side="right")
    padded = np.r_[0.0, relative]
    return [float(v) for v in padded[at]]


def bounds(run: Replayed, evaluations: int | None) -> tuple[int | None, int | None]:
    """Evaluations to the goal if every unrecorded proposal had been best, or worst.

    Best: the first miss would have been the goal. Worst: each miss before the goal would have
    cost an evaluation that gave nothing. ``None`` where the goal is not reached even so.
    """
    first_miss = int(run.missed_at[0]) + 1 if len(run.missed_at) else None
    candidates = [e for e in (evaluations, first_miss) if e is not None]
    low = min(candidates) if candidates else None
    if evaluations is None:
        return low, None
    return low, evaluations + int((run.missed_at < evaluations).sum())


def improvements(run: Replayed) -> dict[str, list[float]]:
    """Return where the best value improved: evaluations, seconds and values, in order of time."""
    order = np.argsort(run.clock_s, kind="stable")
    best = np.fmin.accumulate(run.value_s[order]) if len(order) else run.value_s
    better = np.flatnonzero(np.isfinite(best) & ~(best >= np.r_[np.inf, best[:-1]]))
    return {
        "evaluations": [float(e + 1) for e in order[better]],
        "seconds": [float(c) for c in run.clock_s[order][better]],
        "values": [float(v) for v in best[better]],
    }


def time_ratio(
    steps: dict[str, list[float]], baseline: dict[str, list[float]], unit: str = "seconds"
) -> float | None:
    """S = T / T0 (Han et al. 2025, section 5): lower is better.

    T0 is when the baseline reached its best, T when the other run reached the same throughput;
    infinite when it never did, ``None`` when the baseline never succeeded.
    """
    if not baseline["values"]:
        return None
    target, spent = baseline["values"][-1], baseline[unit][-1]
    for value, at in zip(steps["values"], steps[unit], strict=True):
        if value <= target:
            return at / spent
    return float("inf")


def run_metrics(table: RecordedTable, run: Replayed) -> dict[str, float | int | str | None]:
    """Compute the metrics of one run.

    ``evaluations_to_*`` and ``seconds_to_*`` are ``None`` where the run did not get there: it is
    censored at its budget, and never counted as if it had.
    """
    best = table.best_s
    out: dict[str, float | int | str | None] = {
        "evaluations": len(run.candidate),
        "seconds": float(run.clock_s.max()) if len(run.clock_s) else 0.0,
        "budget": run.budget,
        "proposals": run.proposals,
        "missed": len(run.missed_at),
        "substituted": run.substituted,
        "failures": int(np.isnan(run.latency_s).sum()),
        "stopped": run.stopped,
        # A proposal that another candidate answered for was not recorded either.
        "coverage": (
            1.0 - (len(run.missed_at) + run.substituted) / run.proposals if run.proposals else 1.0
        ),
    }
    if best is None:
        return out
    for share, name in zip(THRESHOLDS, NAMES, strict=True):
        at = first_within(run.value_s, best, share)
        out[f"evaluations_to_{name}"] = None if at is None else at + 1
        out[f"seconds_to_{name}"] = None if at is None else float(run.clock_s[at])
        if name == "1pct":
            low, high = bounds(run, None if at is None else at + 1)
            out["lower_bound_to_1pct"], out["upper_bound_to_1pct"] = low, high
    out["auc"] = area_under_curve(run, best)
    reached = run.best_s()[-1] if len(run.value_s) else float("nan")
    out["best_s"] = float(reached) if np.isfinite(reached) else None
    incumbent = run.incumbent_s()
    out["incumbent_regret"] = None if incumbent is None else incumbent / best - 1.0
    return out
