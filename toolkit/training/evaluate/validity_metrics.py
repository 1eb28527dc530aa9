"""Metrics of a validity model on tasks that it never saw: one definition for each metric.

All of them compare a candidate's predicted probability of failure with whether it failed (it ran
on no occasion). ``docs/reference/metrics.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolkit.results import Result
from toolkit.training.arrays import Bools, Floats
from toolkit.training.evaluate.bootstrap import Interval, mean_interval, named, ratio_interval

EACH = 5
"""A task's ranking is judged if it has at least this many failed and this many good candidates."""

SKIP = 0.5
"""A search that avoids likely failures skips candidates above this probability."""

BINS = 10
CALIBRATION_RESAMPLES = 200


@dataclass(frozen=True)
class TaskValidity:
    """One task's figures; sums over candidates, so that pooled ratios can be formed.

    Attributes
    ----------
    auc
        Probability that a failed candidate has a higher prediction than a good one; ties count one
        half; NaN with fewer than ``EACH`` failed or good candidates.
    average_precision
        Mean precision over the failed candidates in descending order of prediction, equal ones
        together; chance is ``base_rate``. NaN where ``auc`` is.
    brier, brier_base
        Summed squared error of the prediction, and of the training tasks' share of failures as a
        constant prediction.
    avoided, lost
        Numbers of failed and of good candidates that a search with ``SKIP`` would skip.
    lost_best
        Whether it would skip the best recorded candidate.
    """

    task_id: str
    candidates: int
    failed: int
    auc: float
    average_precision: float
    brier: float
    brier_base: float
    avoided: int
    lost: int
    lost_best: bool

    @property
    def base_rate(self) -> float:
        """Share of the candidates that failed."""
        return self.failed / self.candidates


def judge_task(
    task_id: str, latency_s: Floats, probability: Floats, base_rate: float
) -> TaskValidity:
    """Judge one task's predictions; ``latency_s`` is NaN for failed ones.

    ``base_rate`` is the share of failures in the training tasks of the member that predicts.
    """
    from sklearn.metrics import average_precision_score  # takes a second to import

    failed = ~np.isfinite(latency_s)
    both = EACH <= int(failed.sum()) <= len(failed) - EACH
    precision = float(average_precision_score(failed, probability)) if both else float("nan")
    skipped = probability > SKIP
    best = int(np.nanargmin(latency_s)) if not failed.all() else None
    return TaskValidity(
        task_id=task_id,
        candidates=len(failed),
        failed=int(failed.sum()),
        auc=auc(failed, probability) if both else float("nan"),
        average_precision=precision,
        brier=float(np.sum((probability - failed) ** 2)),
        brier_base=float(np.sum((base_rate - failed) ** 2)),
        avoided=int((skipped & failed).sum()),
        lost=int((skipped & ~failed).sum()),
        lost_best=bool(best is not None and skipped[best]),
    )


def auc(failed: Bools, probability: Floats) -> float:
    """Area under the ROC curve, by ranks (Mann and Whitney 1947); ties count one half."""
    from scipy.stats import rankdata

    ranks = rankdata(probability)
    n, m = int(failed.sum()), int((~failed).sum())
    return float((ranks[failed].sum() - n * (n + 1) / 2) / (n * m))


def calibration_error(failed: Bools, probability: Floats) -> float:
    """Expected calibration error: mean over ten equally filled bins of |predicted - observed|."""
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    gaps = [abs(float(probability[p].mean() - failed[p].mean())) * len(p) for p in parts]
    return float(np.sum(gaps) / max(len(failed), 1))


def calibration_interval(parts: Sequence[tuple[Bools, Floats]], seed: int) -> dict[str, Any]:
    """Calibration error over all tasks, with the 2.5 and 97.5 % quantiles of resamples by task.

    ``parts`` gives for each task which candidates failed, and the probabilities.
    """

    def pooled(chosen: Sequence[tuple[Bools, Floats]]) -> float:
        failed, probability = (np.concatenate(side) for side in zip(*chosen, strict=True))
        return calibration_error(failed, probability)

    rng = np.random.default_rng(seed)
    drawn = [
        pooled([parts[i] for i in rng.integers(0, len(parts), len(parts))])
        for _ in range(CALIBRATION_RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return named("calibration_error", (pooled(parts), float(low), float(high)))


@dataclass(frozen=True, repr=False, kw_only=True)
class ValidityMetrics(Result):
    """Means over tasks and ratios of sums, each with its 95 % interval by task.

    Names are those of ``TaskValidity``; ``_base_rate`` marks the figures of a predictor that knows
    only the share of failures. ``brier_skill`` is 1 minus the ratio of the two Brier scores.
    """

    n_test_tasks: int
    n_ranked_tasks: int | None = None
    auc: float | None = None
    auc_interval: Interval | None = None
    average_precision: float | None = None
    average_precision_interval: Interval | None = None
    average_precision_base_rate: float | None = None
    average_precision_base_rate_interval: Interval | None = None
    lost_best: float | None = None
    lost_best_interval: Interval | None = None
    brier: float | None = None
    brier_interval: Interval | None = None
    brier_base_rate: float | None = None
    brier_base_rate_interval: Interval | None = None
    avoided: float | None = None
    avoided_interval: Interval | None = None
    lost: float | None = None
    lost_interval: Interval | None = None
    failed_share: float | None = None
    failed_share_interval: Interval | None = None
    brier_skill: float | None = None
    brier_skill_interval: Interval | None = None


def summarize_validity(judged: Sequence[TaskValidity], *, seed: int = 0) -> ValidityMetrics:
    """Means over tasks and ratios of sums, each with its 95 % interval by task."""
    if not judged:
        return ValidityMetrics(n_test_tasks=0)

    def array(name: str) -> Floats:
        return np.array([getattr(task, name) for task in judged], dtype=np.float64)

    ranked = np.isfinite(array("auc"))
    ran = array("failed") < array("candidates")  # else there is no best candidate to lose
    result: dict[str, Any] = {"n_ranked_tasks": int(ranked.sum())}
    for name, values in (
        ("auc", array("auc")),
        ("average_precision", array("average_precision")),
        ("average_precision_base_rate", np.where(ranked, array("base_rate"), np.nan)),
        ("lost_best", np.where(ran, array("lost_best"), np.nan)),
    ):
        result |= named(name, mean_interval(values, seed=seed))
    candidates, failed = array("candidates"), array("failed")
    for name, above, below in (
        ("brier", "brier", candidates),
        ("brier_base_rate", "brier_base", candidates),
        ("avoided", "avoided", failed),
        ("lost", "lost", candidates - failed),
        ("failed_share", "failed", candidates),
    ):
        result |= named(name, ratio_interval(array(above), below, seed=seed))
    value, low, high = ratio_interval(array("brier"), array("brier_base"), seed=seed)
    result |= named("brier_skill", (1 - value, 1 - high, 1 - low))
    return ValidityMetrics(n_test_tasks=len(judged), **result)
