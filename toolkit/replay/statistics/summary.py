"""The plain summary of a simulation: dictionaries that tests check and reports draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario
from toolkit.replay.statistics.metrics import NAMES, time_ratio
from toolkit.replay.statistics.statistics import (
    Resamples,
    compare,
    effective_sample_size,
    figure,
    finite,
    interval,
    maximum,
    mean,
    median,
    ranking,
)

FloatArray = NDArray[np.float64]
Rows = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
"""By task and label, for each seed: the metrics of the run, its steps and curves."""


@dataclass(frozen=True)
class Matrices:
    """Metrics of all runs as ``(tasks, seeds)`` matrices, one a strategy."""

    rows: Rows
    tasks: Sequence[str]

    def get(self, label: str, key: str, absent: float = np.inf) -> FloatArray:
        """Matrix of one metric; runs that do not have it count as ``absent``."""
        return np.array(
            [
                [absent if row.get(key) is None else row[key] for row in self.rows[task, label]]
                for task in self.tasks
            ],
            dtype=np.float64,
        )

    def censored(self, label: str, key: str, at: str) -> FloatArray:
        """Matrix in which runs that did not get there count as what they had spent at most."""
        values = self.get(label, key)
        return np.where(np.isinf(values), self.get(label, at), values)

    def scores(self, label: str) -> FloatArray:
        """Methodology scores, ``(tasks, 1)``, of the tasks where every strategy has one."""
        every = [self.get(other, "score", np.nan)[:, :1] for other in {k[1] for k in self.rows}]
        defined = np.isfinite(every).all(axis=(0, 2))
        return self.get(label, "score")[defined, :1]

    def ratios(self, label: str, baseline: str) -> FloatArray | None:
        """S = T / T0 against the baseline's run of the same task and seed; lower is better."""
        if (self.tasks[0], baseline) not in self.rows:
            return None
        return np.array(
            [
                [
                    time_ratio(one["steps"], other["steps"])
                    for one, other in zip(
                        self.rows[task, label], self.rows[task, baseline], strict=True
                    )
                ]
                for task in self.tasks
            ]
        )


def strategy_summary(
    matrices: Matrices, label: str, resamples: Resamples, scenario: Scenario
) -> dict[str, Any]:
    """Summarise one strategy over all tasks and seeds, every figure with its interval.

    ``median``, ``mean`` and ``max`` are over all runs (every task has the same number of seeds).
    A run that did not get there is infinite: the median and the mean are null when that makes them
    infinite. ``restricted_mean`` counts such a run at its budget, and so is a lower bound.
    """
    get = partial(matrices.get, label)
    make = partial(figure, resamples=resamples, confidence=scenario.confidence)
    out: dict[str, Any] = {"strategy": label}
    for name in NAMES:
        for unit, spent in (("evaluations", "budget"), ("seconds", "seconds")):
            key = f"{unit}_to_{name}"
            values = get(key)
            out |= make(f"median_{key}", values, median)
            out |= make(f"mean_{key}", values, mean)
            out |= make(f"max_{key}", values, maximum)
            out |= make(f"restricted_mean_{key}", matrices.censored(label, key, spent), mean)
        reached = np.isfinite(get(f"evaluations_to_{name}")).astype(np.float64)
        out |= make(f"reached_share_{name}", reached, mean)
    out["reached_share"] = out["reached_share_1pct"]
    out["reached_share_interval"] = out["reached_share_1pct_interval"]
    out |= make("auc", get("auc", 0.0), mean)
    out |= make("median_incumbent_regret", get("incumbent_regret"), median)
    scores = matrices.scores(label)
    out |= {"score_tasks": len(scores), "score": None, "score_interval": [None, None]}
    if len(scores):
        by_task = Resamples.draw(len(scores), 1, scenario.resamples)
        out |= figure("score", scores, mean, by_task, scenario.confidence)
    ratios = matrices.ratios(label, scenario.baseline)
    if ratios is not None:
        out |= make("median_time_ratio", ratios, median)
        out["time_ratio_baseline"] = scenario.baseline
    out |= make("coverage", get("coverage", 1.0), mean)
    for name in ("proposals", "missed", "substituted", "evaluations"):
        out[name] = int(get(name, 0.0).sum())
    out["failure_share"] = float(get("failures", 0.0).sum() / max(out["evaluations"], 1.0))
    lower, upper = (get(f"{side}_bound_to_1pct").reshape(-1) for side in ("lower", "upper"))
    out["median_evaluations_to_1pct_if_unrecorded"] = {
        "were_best": finite(float(median(lower))),
        "were_worst": finite(float(median(upper))),
    }
    logs = np.log(matrices.censored(label, "evaluations_to_1pct", "budget"))
    return out | {"effective_runs": effective_sample_size(logs), "runs": logs.size}


def task_facts(table: RecordedTable) -> dict[str, Any]:
    """Say what is known of a task's record: how complete, how noisy, where its times are from."""
    task, best = table.task, table.best_s
    near = 0 if best is None else int((table.value_s <= best * 1.01).sum())
    return {
        "workload": task.workload,
        "arguments": task.arguments,
        "format": task.format,
        "machine": task.machine,
        "candidates": len(table),
        "good_candidates": int(np.isfinite(table.value_s).sum()),
        "enumerated": table.enumerated,
        "best": "optimum" if table.enumerated else "best recorded",
        "best_s": best,
        "candidates_within_1pct": near,
        "random_expected_evaluations_to_1pct": finite(expected_evaluations(len(table), near)),
        "occasions": len(table.state),
        "noise": "drawn" if bool((table.occasions > 1).any()) else "unknown",
        "repeats_in_record": sorted({len(times) for times in table.run_times_s if times}),
        "elapsed_from": table.elapsed_sources,
        "neighbourhood_coverage": RecordedSpace(table).neighbourhood_coverage(),
    }


def expected_evaluations(n: int, good: int) -> float:
    """Mean number of draws until the first of ``good`` among n candidates; infinite for none.

    Random search without replacement: the number of draws before it has a negative hypergeometric
    distribution. Failures are candidates that are never good enough.
    """
    return (n + 1) / (good + 1) if good else float("inf")


def task_rows(matrices: Matrices, labels: Sequence[str]) -> list[dict[str, Any]]:
    """One row a task and strategy."""
    out = []
    for t, task_id in enumerate(matrices.tasks):
        for label in labels:
            row: dict[str, Any] = {"task_id": task_id, "strategy": label}
            for name in NAMES:
                for unit in ("evaluations", "seconds"):
                    values = matrices.get(label, f"{unit}_to_{name}")[t]
                    row[f"median_{unit}_to_{name}"] = finite(float(median(values)))
                row[f"reached_share_{name}"] = float(np.isfinite(values).mean())
            row["reached_share"] = row["reached_share_1pct"]
            row["auc"] = float(matrices.get(label, "auc", 0.0)[t].mean())
            row["coverage"] = float(matrices.get(label, "coverage", 1.0)[t].mean())
            out.append(row)
    return out


def comparison_rows(
    matrices: Matrices, labels: Sequence[str], resamples: Resamples, scenario: Scenario
) -> dict[str, Any]:
    """Which differences hold, and the ranking that follows, by area under the curve."""
    values = {label: matrices.get(label, "auc", 0.0) for label in labels}
    pairs = compare(values, resamples, scenario.confidence)
    return {
        "metric": "auc",
        "direction": "higher is better",
        "pairs": pairs,
        "ranking": ranking(values, pairs),
    }


def curve_rows(
    matrices: Matrices,
    labels: Sequence[str],
    grids: Mapping[str, Sequence[float]],
    resamples: Resamples,
    scenario: Scenario,
) -> dict[str, Any]:
    """Mean relative performance (best recorded over best so far) with bands, by unit."""
    out: dict[str, Any] = {}
    for unit, grid in grids.items():
        lines = out.setdefault(unit, {"grid": list(grid), "strategies": {}})["strategies"]
        for label in labels:
            curves = np.array(
                [[r[f"curve_{unit}"] for r in matrices.rows[t, label]] for t in matrices.tasks],
                dtype=np.float64,
            )
            bands = [
                interval(curves[:, :, i], mean, resamples, scenario.confidence)
                for i in range(len(grid))
            ]
            lines[label] = {
                "mean": curves.mean(axis=(0, 1)).tolist(),
                "low": [finite(low) for low, _ in bands],
                "high": [finite(high) for _, high in bands],
            }
    return out
