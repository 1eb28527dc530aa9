"""Compare the tuners of a log: what each reached, and when. Find each source's tuner."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import polars as pl

from toolkit.datasets.analysis.result import NEAR, Bounds, Reached, Tuner, Tuners
from toolkit.datasets.read.labels import network_weights
from toolkit.datasets.read.open import Dataset

TUNER_LABELS = ("tuner", "strategy", "method", "search")
MOST_TUNERS = 16
DEEPEST = 4
PROFILE_POINTS = 48


def find_tuners(dataset: Dataset, runs: pl.DataFrame) -> tuple[str, dict[str, str]] | None:
    """Return what distinguishes the tuners, and each source's tuner; ``None`` if nothing does.

    It is a label of the sources named ``tuner`` (or ``strategy``, ``method``, ``search``). Without
    such a label, it is a folder level of the paths with 2 to 16 names, if a task was recorded under
    at least half of the names on average, and the median task under two: logs of several tuners on
    the same tasks are usually stored like this.
    """
    labels = dataset.source_labels()
    for label in TUNER_LABELS:
        found = {source: own[label] for source, own in labels.items() if label in own}
        if len(set(found.values())) > 1:
            return f"label {label}", found
    parts = {
        source.source_id: PurePath(source.path.replace("::", "/")).parts
        for source in dataset.manifest.sources
    }
    levels = []
    for above in range(1, DEEPEST + 1):
        names = {s: own[-1 - above] for s, own in parts.items() if len(own) > above}
        distinct = len(set(names.values()))
        if len(names) < len(parts) or not 2 <= distinct <= MOST_TUNERS:
            continue
        tuner = runs["source_id"].replace_strict(names, return_dtype=pl.String)
        met = runs.select("task_id", tuner=tuner).unique().group_by("task_id").len()["len"]
        share = float(np.mean(met.to_numpy())) / distinct
        if share >= 0.5 and float(np.median(met.to_numpy())) >= 2:
            levels.append((share, -above, names))
    if not levels:
        return None
    _, above, names = max(levels, key=lambda level: level[:2])
    return f"folder {-above} above the file", names


def compare_tuners(dataset: Dataset, runs: pl.DataFrame, speeds: pl.DataFrame) -> Tuners | None:
    """Compare tuners on the tasks that all of them ran; ``None`` without two tuners.

    ``runs`` is from ``runs_frame``, ``speeds`` from ``slowdowns``.
    """
    found = find_tuners(dataset, runs)
    if found is None:
        return None
    by, names = found
    tuner = pl.col("source_id").replace_strict(names, default=None, return_dtype=pl.String)
    slow = speeds.select("task_id", "source_id", "slowdown")
    rows = runs.join(slow, on=["task_id", "source_id"], how="left", maintain_order="left")
    rows = rows.with_columns(tuner=tuner).drop_nulls(["tuner", "task_best"])
    every = rows["tuner"].n_unique()
    met = rows.group_by("task_id").agg(pl.col("tuner").n_unique())
    shared = met.filter(pl.col("tuner") == every)["task_id"]
    common = len(shared) > 0
    if not common:
        shared = met.filter(pl.col("tuner") > 1)["task_id"]
    rows = rows.filter(pl.col("task_id").is_in(shared.implode()))
    if every < 2 or rows.is_empty():
        return None
    tuners = [_tuner(part) for part in rows.partition_by("tuner")]

    def order(tuner: Tuner) -> tuple[bool, float, float, str]:
        nearest = tuner.reached[-1]
        effort = nearest.evaluations
        return effort is None, effort or 0.0, -nearest.reached_share, tuner.tuner

    return Tuners(by=by, tasks=len(shared), common=common, tuners=tuple(sorted(tuners, key=order)))


def _tuner(runs: pl.DataFrame) -> Tuner:
    ratios = _by_task(runs, (pl.col("best") / pl.col("task_best")).fill_null(math.inf))
    # Share of runs within 1 %, at the numbers of evaluations that runs needed for it.
    efforts = np.sort(runs["evaluations_to_1pct"].drop_nulls().to_numpy())
    places = np.linspace(0, len(efforts) - 1, min(PROFILE_POINTS, len(efforts))).astype(np.int64)
    points = np.unique(efforts[places])
    shares = np.searchsorted(efforts, points, side="right") / len(runs)
    return Tuner(
        tuner=runs["tuner"][0],
        runs=len(runs),
        tasks=len(ratios),
        evaluations=float(np.median(runs["evaluations"].to_numpy())),
        failed_share=int(runs["failed"].sum()) / int(runs["evaluations"].sum()),
        final_ratio=_finite(np.median(ratios)),
        final_ratio_interval=median_interval(ratios),
        final_ratio_worst=_finite(max(ratios)),
        reached=tuple(_reached(runs, percent) for percent in NEAR),
        profile=tuple(zip(points.tolist(), shares.tolist(), strict=True)),
        slowdown=runs.select(pl.col("slowdown").median()).item(),
    )


def _reached(runs: pl.DataFrame, percent: int) -> Reached:
    reached = pl.col(f"evaluations_to_{percent}pct")
    seconds = pl.col(f"seconds_to_{percent}pct")
    efforts = _by_task(runs, reached.cast(pl.Float64).fill_null(math.inf))
    untimed = runs.select((reached.is_not_null() & seconds.is_null()).any()).item()
    return Reached(
        percent=percent,
        reached_share=float(runs.select(reached.is_not_null().mean()).item()),
        evaluations=_finite(np.median(efforts)),
        evaluations_interval=median_interval(efforts),
        seconds=None
        if untimed
        else _finite(np.median(_by_task(runs, seconds.fill_null(math.inf)))),
    )


def _by_task(runs: pl.DataFrame, figure: pl.Expr) -> list[float]:
    """Median over each task's runs."""
    rows = runs.select("task_id", figure=figure).group_by("task_id", maintain_order=True)
    # polars interpolates between infinity and a number to NaN, numpy to infinity.
    return [float(np.median(values)) for values in rows.agg("figure")["figure"].to_list()]


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def median_interval(values: Sequence[float]) -> Bounds | None:
    """Return the 95 % interval of a median from order statistics; ``None`` for fewer than six.

    Distribution-free (David and Nagaraja 2003, section 7.1): the bounds are the ordered values
    between which the median lies with at least that probability. An infinite bound is ``None``.
    """
    n = len(values)
    below = itertools.accumulate(math.comb(n, k) for k in range(n + 1))
    # The first k for which P(at most k heads in n throws of a fair coin) is at least 1/40.
    rank = next(k for k, outcomes in enumerate(below) if 40 * outcomes >= 2**n)
    if rank < 1:
        return None
    ordered = sorted(values)
    return _finite(ordered[rank - 1]), _finite(ordered[-rank])


def task_weights(dataset: Dataset, runs: pl.DataFrame) -> dict[str, float]:
    """How often networks run each task (``network_weights``), summed over the networks.

    Tasks whose sources have no network label are left out.
    """
    pairs = runs.select("task_id", "source_id").iter_rows()
    found: dict[str, float] = {}
    for weights in network_weights(pairs, dataset.source_labels()).values():
        for task_id, weight in weights.items():
            found[task_id] = found.get(task_id, 0.0) + weight
    return found
