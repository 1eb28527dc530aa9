"""Metrics of a predictor on tasks that it never saw: one definition for each metric.

All of them judge one task at a time, from the measured latencies of its candidates (seconds) and
one score per candidate (higher = predicted faster). A task's best is the best *recorded* latency.
Metrics of the first picks use the order in which the model would measure candidates
(``shortlist.preference``); a model without such an order measures by descending score.
Candidates with equal scores are treated as if they were ordered at random, and the expectation over
that order is reported: a constant predictor gains nothing from the order of a log.

Pooled figures are means over tasks. Figures of a network are ratios of sums: ``network_top_k`` is
the sum of its tasks' best latencies over the sum of the picks' latencies (TLP, section 6.1,
with equal weights). Intervals come from ``bootstrap.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from toolkit.results import Result
from toolkit.training.arrays import Bools, Floats
from toolkit.training.evaluate.bootstrap import Interval, mean_interval, named, ratio_interval

MAX_PAIRWISE = 2000
"""``pairwise`` uses at most this many candidates of a task, drawn with a fixed seed."""

TIE = 0.01
"""``pairwise`` ignores pairs of latencies that differ by less than this share."""


@dataclass(frozen=True)
class TaskMetrics:
    """How well one task's candidates were predicted.

    Attributes
    ----------
    top1, top5, top10
        Best latency over the best latency among the first k picks, in (0, 1]; 1 is perfect.
        (TenSet calls the mean over tasks peak@k.)
    top5_by_score
        The same for the five highest scores, even if the model would measure in another order.
    slowdown
        Latency of the first pick over the best, minus 1; 0 is perfect.
    pairwise
        Share of the pairs more than 1 % apart in latency that the scores order correctly; a tie in
        the scores counts one half; 0.5 is chance.
    recall10
        Share of the ten fastest candidates among the ten highest scores.
    spearman
        Rank correlation of score and throughput, in [-1, 1].
    rmse
        Root mean square error of the predicted log relative throughput; only for scores in that
        unit.
    calibration
        Slope of the regression of true on predicted log relative throughput; 1 is calibrated, less
        is over-confident.
    to_1pct
        Picks until one within 1 % of the best.
    """

    top1: float
    top5: float
    top10: float
    top5_by_score: float
    slowdown: float
    pairwise: float
    recall10: float
    spearman: float
    rmse: float
    calibration: float
    to_1pct: float


def task_metrics(latency_s: Floats, score: Floats, preference: Floats | None = None) -> TaskMetrics:
    """Return the metrics of one task's scores (higher: predicted faster).

    ``latency_s`` is finite and positive. ``preference``, if given, has one value per candidate: the
    model would measure candidates in descending order of it.
    """
    if len(latency_s) != len(score) or len(score) == 0:
        raise ValueError("give one score for each latency, and at least one of each")
    picked = score if preference is None else preference
    best = float(latency_s.min())
    speed = best / latency_s
    truth = np.log(speed)
    centred = score - score.mean()
    spread = float((centred**2).mean())
    slope = float((centred * (truth - truth.mean())).mean() / spread) if spread > 0 else np.nan
    return TaskMetrics(
        top1=top_k(speed, picked, 1),
        top5=top_k(speed, picked, 5),
        top10=top_k(speed, picked, 10),
        top5_by_score=top_k(speed, score, 5),
        slowdown=float((latency_s / best)[picked == picked.max()].mean()) - 1.0,
        pairwise=pairwise(latency_s, score),
        recall10=recall(latency_s, score, 10),
        spearman=spearman(speed, score),
        rmse=float(np.sqrt(np.mean((score - truth) ** 2))),
        calibration=slope,
        to_1pct=picks_until(speed >= 1 / 1.01, picked),
    )


def top_k(speed: Floats, score: Floats, k: int) -> float:
    """Expected highest ``speed`` among the k highest scores, ties in random order."""
    k = min(k, len(speed))
    edge = np.partition(score, len(score) - k)[len(score) - k]
    sure = speed[score > edge]
    floor = float(sure.max()) if len(sure) else 0.0
    tied = np.sort(speed[score == edge])
    drawn = k - len(sure)
    # P(maximum of `drawn` out of t tied <= j-th smallest) = C(j, drawn) / C(t, drawn)
    below = np.ones(len(tied) + 1)
    j = np.arange(len(tied) + 1, dtype=np.float64)
    for i in range(drawn):
        below *= np.maximum(j - i, 0.0) / (len(tied) - i)
    return float(np.sum(np.diff(below) * np.maximum(tied, floor)))


def picks_until(hit: Bools, score: Floats) -> float:
    """Expected number of candidates taken by descending score until one of ``hit`` is taken."""
    if not hit.any():
        return float("nan")
    edge = score[hit].max()
    before = int((score > edge).sum())
    tied = int((score == edge).sum())
    good = int((hit & (score == edge)).sum())
    return before + (tied + 1) / (good + 1)


def pairwise(latency_s: Floats, score: Floats) -> float:
    """Share of pairs ordered correctly (see ``TaskMetrics``); NaN where no two latencies differ."""
    if len(score) > MAX_PAIRWISE:
        chosen = np.random.default_rng(0).choice(len(score), MAX_PAIRWISE, replace=False)
        latency_s, score = latency_s[chosen], score[chosen]
    slower = latency_s[:, None] > latency_s[None, :] * (1 + TIE)
    pairs = int(slower.sum())
    if pairs == 0:
        return float("nan")
    right = int((slower & (score[:, None] < score[None, :])).sum())
    equal = int((slower & (score[:, None] == score[None, :])).sum())
    return (right + equal / 2) / pairs


def recall(latency_s: Floats, score: Floats, k: int) -> float:
    """Expected share of the k fastest among the k highest scores, ties in random order."""
    k = min(k, len(score))
    fast = np.zeros(len(score), dtype=bool)
    fast[np.argsort(latency_s, kind="stable")[:k]] = True
    edge = np.partition(score, len(score) - k)[len(score) - k]
    sure, tied = score > edge, score == edge
    share = (k - int(sure.sum())) / int(tied.sum())
    return float((fast & sure).sum() + share * (fast & tied).sum()) / k


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation with mean ranks for ties; NaN where one side is constant."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum() / scale) if scale > 0 else float("nan")


@dataclass(frozen=True)
class JudgedTask:
    """One task's metrics, with its best latency, networks and family of operators."""

    task_id: str
    candidates: int
    best_s: float
    metrics: TaskMetrics
    networks: tuple[str, ...] = ()
    enumerated: bool = False
    family: str = ""


@dataclass(frozen=True, repr=False, kw_only=True)
class ThroughputMetrics(Result):
    """Means of ``TaskMetrics`` over tasks, with 95 % intervals by task.

    Also by network and by family of operators. If no task was judged, only ``n_test_tasks`` is set.
    ``enumerated`` has the same figures for the tasks whose space was recorded completely, if these
    are some but not all of the tasks.
    """

    n_test_tasks: int
    top1: float | None = None
    top1_interval: Interval | None = None
    top5: float | None = None
    top5_interval: Interval | None = None
    top10: float | None = None
    top10_interval: Interval | None = None
    top5_by_score: float | None = None
    top5_by_score_interval: Interval | None = None
    slowdown: float | None = None
    slowdown_interval: Interval | None = None
    pairwise: float | None = None
    pairwise_interval: Interval | None = None
    recall10: float | None = None
    recall10_interval: Interval | None = None
    spearman: float | None = None
    spearman_interval: Interval | None = None
    rmse: float | None = None
    rmse_interval: Interval | None = None
    calibration: float | None = None
    calibration_interval: Interval | None = None
    to_1pct: float | None = None
    to_1pct_interval: Interval | None = None
    median_to_1pct: float | None = None
    max_to_1pct: float | None = None
    networks: dict[str, dict[str, Any]] | None = None
    families: dict[str, dict[str, Any]] | None = None
    enumerated: ThroughputMetrics | None = None


def summarize(judged: Sequence[JudgedTask], *, seed: int = 0) -> ThroughputMetrics:
    """Mean of every metric over tasks with its interval, and figures by network and family."""
    if not judged:
        return ThroughputMetrics(n_test_tasks=0)
    names = [field.name for field in fields(TaskMetrics)]
    summary = mean_metrics([task.metrics for task in judged], names, seed)
    reached = np.array([task.metrics.to_1pct for task in judged])
    summary["median_to_1pct"] = float(np.nanmedian(reached))
    summary["max_to_1pct"] = float(np.nanmax(reached))
    networks = sorted({name for task in judged for name in task.networks})
    summary["networks"] = {
        name: _network_top_k([t for t in judged if name in t.networks], seed) for name in networks
    }
    summary["families"] = {}
    for name in sorted({task.family for task in judged}):
        own = [task.metrics for task in judged if task.family == name]
        means = mean_metrics(own, ("top1", "top5"), seed)
        summary["families"][name] = {"n_tasks": len(own), **means}
    return ThroughputMetrics(n_test_tasks=len(judged), **summary)


def mean_metrics(metrics: Sequence[TaskMetrics], names: Iterable[str], seed: int) -> dict[str, Any]:
    """Means of some metrics over tasks, with their intervals."""
    result: dict[str, Any] = {}
    for name in names:
        values = np.array([getattr(one, name) for one in metrics])
        result |= named(name, mean_interval(values, seed=seed))
    return result


def summarize_all(judged: Sequence[JudgedTask], *, seed: int = 0) -> ThroughputMetrics:
    """Summarize all tasks, and the enumerated ones separately."""
    complete = [task for task in judged if task.enumerated]
    apart = summarize(complete, seed=seed) if 0 < len(complete) < len(judged) else None
    return replace(summarize(judged, seed=seed), enumerated=apart)


def difference(a: Sequence[JudgedTask], b: Sequence[JudgedTask], seed: int) -> dict[str, Any]:
    """Paired differences a - b over the tasks that both judged, with their intervals."""
    others = {task.task_id: task.metrics for task in b}
    pairs = [(t.metrics, others[t.task_id]) for t in a if t.task_id in others]
    result: dict[str, Any] = {}
    for name in ("top1", "top5", "pairwise"):
        gaps = np.array([getattr(own, name) - getattr(other, name) for own, other in pairs])
        result |= named(name, mean_interval(gaps, seed=seed))
    return result


def _network_top_k(judged: Sequence[JudgedTask], seed: int) -> dict[str, Any]:
    """Sum of best latencies over the sum of the picks' latencies, for k = 1 and 5."""
    best = np.array([task.best_s for task in judged])
    result: dict[str, Any] = {"n_tasks": len(judged)}
    for k in (1, 5):
        # A pick's expected latency: exact without ties, else the latency of the expected speed.
        picked = best / np.array([getattr(task.metrics, f"top{k}") for task in judged])
        result |= named(f"network_top{k}", ratio_interval(best, picked, seed=seed))
        result[f"top{k}"] = float(np.mean(best / picked))
    return result


def task_rows(judged: Sequence[JudgedTask]) -> list[dict[str, Any]]:
    """One flat, JSON-ready row per task."""
    rows = []
    for task in judged:
        row = asdict(task)
        metrics = row.pop("metrics")
        rows.append({**row, "networks": list(task.networks), **metrics})
    return rows
