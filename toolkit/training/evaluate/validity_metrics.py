"""What a validity model is worth on tasks that it never saw: one definition for each metric.

All of them compare a candidate's predicted probability of failure with whether it failed (it ran
on no occasion). ``docs/reference/metrics.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from toolkit.training.evaluate.bootstrap import mean_interval, ratio_interval

Floats = NDArray[np.float64]

EACH = 5
"""A task's ranking is judged when it has so many failed and so many good candidates."""

SKIP = 0.5
"""A search that avoids likely failures skips candidates above this probability."""

BINS = 10


@dataclass(frozen=True)
class TaskValidity:
    """One task's figures; sums over candidates, so that pooled ratios can be formed.

    Attributes
    ----------
    auc
        Probability that a failed candidate has a higher prediction than a good one; ties count one
        half; NaN where either is rare (``EACH``).
    average_precision
        Mean precision over the failed candidates taken by falling prediction; chance is
        ``base_rate``. NaN as ``auc``.
    brier, brier_base
        Summed squared error of the prediction, and of the training tasks' share of failures.
    avoided, lost
        Failed and good candidates that ``SKIP`` would leave out.
    lost_best
        Whether the best recorded candidate would be left out.
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
    """Judge one task's predictions; ``latency_s`` is NaN for what failed.

    ``base_rate`` is the share of failures in the training tasks of the member that predicts.
    """
    failed = ~np.isfinite(latency_s)
    both = EACH <= int(failed.sum()) <= len(failed) - EACH
    skipped = probability > SKIP
    best = int(np.nanargmin(latency_s)) if not failed.all() else None
    return TaskValidity(
        task_id=task_id,
        candidates=len(failed),
        failed=int(failed.sum()),
        auc=auc(failed, probability) if both else float("nan"),
        average_precision=average_precision(failed, probability) if both else float("nan"),
        brier=float(np.sum((probability - failed) ** 2)),
        brier_base=float(np.sum((base_rate - failed) ** 2)),
        avoided=int((skipped & failed).sum()),
        lost=int((skipped & ~failed).sum()),
        lost_best=bool(best is not None and skipped[best]),
    )


def auc(failed: NDArray[np.bool_], probability: Floats) -> float:
    """Area under the ROC curve, by ranks (Mann and Whitney 1947); ties count one half."""
    from scipy.stats import rankdata

    ranks = rankdata(probability)
    n, m = int(failed.sum()), int((~failed).sum())
    return float((ranks[failed].sum() - n * (n + 1) / 2) / (n * m))


def average_precision(failed: NDArray[np.bool_], probability: Floats) -> float:
    """Average precision; candidates with equal predictions are taken together."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(failed, probability))


def calibration_error(failed: NDArray[np.bool_], probability: Floats) -> float:
    """Expected calibration error: mean over ten equally filled bins of |predicted - observed|."""
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    gaps = [abs(float(probability[p].mean() - failed[p].mean())) * len(p) for p in parts]
    return float(np.sum(gaps) / max(len(failed), 1))


def summarize_validity(judged: Sequence[TaskValidity], *, seed: int = 0) -> dict[str, object]:
    """Means over tasks and ratios of sums, each with its 95 % interval by task."""
    result: dict[str, object] = {"n_test_tasks": len(judged)}
    if not judged:
        return result

    def array(name: str) -> Floats:
        return np.array([getattr(task, name) for task in judged], dtype=np.float64)

    ranked = np.isfinite(array("auc"))
    result["n_ranked_tasks"] = int(ranked.sum())
    means = {
        "auc": array("auc"),
        "average_precision": array("average_precision"),
        "average_precision_base_rate": np.where(ranked, array("base_rate"), np.nan),
        "lost_best": array("lost_best"),
    }
    good = array("candidates") - array("failed")
    ratios = {
        "brier": (array("brier"), array("candidates")),
        "brier_base_rate": (array("brier_base"), array("candidates")),
        "avoided": (array("avoided"), array("failed")),
        "lost": (array("lost"), good),
        "failed_share": (array("failed"), array("candidates")),
    }
    for name, values in means.items():
        mean, low, high = mean_interval(values, seed=seed)
        result[name], result[f"{name}_interval"] = mean, [low, high]
    for name, (above, below) in ratios.items():
        value, low, high = ratio_interval(above, below, seed=seed)
        result[name], result[f"{name}_interval"] = value, [low, high]
    value, low, high = ratio_interval(array("brier"), array("brier_base"), seed=seed)
    result["brier_skill"] = 1 - value
    result["brier_skill_interval"] = [1 - high, 1 - low]
    return result


def validity_rows(judged: Sequence[TaskValidity]) -> list[dict[str, object]]:
    """One flat, JSON-ready row a task."""
    return [{**asdict(task), "base_rate": task.base_rate} for task in judged]
