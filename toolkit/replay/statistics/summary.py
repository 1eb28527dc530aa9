"""The plain summary of a simulation: one dictionary that tests check and reports draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario
from toolkit.replay.statistics.closed_form import expected_evaluations
from toolkit.replay.statistics.metrics import NAMES, time_ratio
from toolkit.replay.statistics.statistics import (
    Resamples,
    Statistic,
    compare,
    effective_sample_size,
    interval,
    maximum,
    mean,
    median,
    ranking,
)

FloatArray = NDArray[np.float64]
Rows = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]


def finite(value: float) -> float | None:
    """Infinite means "not reached" and NaN "unknown", both of which JSON says as null."""
    return float(value) if np.isfinite(value) else None


class Matrices:
    """Metrics of all runs as ``(tasks, seeds)`` matrices, one a strategy."""

    def __init__(self, rows: Rows, tasks: Sequence[str], seeds: int) -> None:
        self.rows, self.tasks, self.seeds = rows, list(tasks), seeds

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
        labels = {label for _, label in self.rows}
        defined = [
            task
            for task in self.tasks
            if all(self.rows[task, other][0].get("score") is not None for other in labels)
        ]
        values = [[self.rows[task, label][0]["score"]] for task in defined]
        return np.array(values, dtype=np.float64).reshape(len(defined), 1)

    def ratios(self, label: str, baseline: str) -> FloatArray | None:
        """S = T / T0 against the baseline's run of the same task and seed; lower is better."""
        if (self.tasks[0], baseline) not in self.rows:
            return None
        return np.array(
            [
                [
                    np.inf if ratio is None else ratio
                    for ratio in (
                        time_ratio(one["steps"], other["steps"])
                        for one, other in zip(
                            self.rows[task, label], self.rows[task, baseline], strict=True
                        )
                    )
                ]
                for task in self.tasks
            ],
            dtype=np.float64,
        )


def _figure(
    out: dict[str, Any],
    name: str,
    values: FloatArray,
    statistic: Statistic,
    resamples: Resamples,
    confidence: float,
) -> None:
    low, high = interval(values, statistic, resamples, confidence)
    out[name] = finite(float(statistic(values.reshape(-1))))
    out[f"{name}_interval"] = [finite(low), finite(high)]


def strategy_summary(
    matrices: Matrices, label: str, resamples: Resamples, scenario: Scenario
) -> dict[str, Any]:
    """Summarise one strategy over all tasks and seeds, every figure with its interval.

    ``median``, ``mean`` and ``max`` are over all runs (every task has the same number of seeds).
    A run that did not get there is infinite: the median and the mean are null when that makes them
    infinite. ``restricted_mean`` counts such a run at its budget, and so is a lower bound.
    """
    out: dict[str, Any] = {"strategy": label}
    args = (resamples, scenario.confidence)
    for name in NAMES:
        for unit, spent in (("evaluations", "budget"), ("seconds", "seconds")):
            key = f"{unit}_to_{name}"
            values = matrices.get(label, key)
            _figure(out, f"median_{key}", values, median, *args)
            _figure(out, f"mean_{key}", values, mean, *args)
            _figure(out, f"max_{key}", values, maximum, *args)
            restricted = matrices.censored(label, key, spent)
            _figure(out, f"restricted_mean_{key}", restricted, mean, *args)
        reached = np.isfinite(matrices.get(label, f"evaluations_to_{name}")).astype(np.float64)
        _figure(out, f"reached_share_{name}", reached, mean, *args)
    out["reached_share"] = out["reached_share_1pct"]
    out["reached_share_interval"] = out["reached_share_1pct_interval"]
    _figure(out, "auc", matrices.get(label, "auc", 0.0), mean, *args)
    regret = matrices.get(label, "incumbent_regret")
    _figure(out, "median_incumbent_regret", regret, median, *args)
    scores = matrices.scores(label)
    out["score_tasks"] = len(scores)
    out["score"], out["score_interval"] = None, [None, None]
    if len(scores):
        by_task = Resamples.draw(len(scores), 1, scenario.resamples)
        _figure(out, "score", scores, mean, by_task, scenario.confidence)
    ratios = matrices.ratios(label, scenario.baseline)
    if ratios is not None:
        _figure(out, "median_time_ratio", ratios, median, *args)
        out["time_ratio_baseline"] = scenario.baseline
    proposals = matrices.get(label, "proposals", 0.0)
    missed = matrices.get(label, "missed", 0.0)
    _figure(out, "coverage", matrices.get(label, "coverage", 1.0), mean, *args)
    evaluations = matrices.get(label, "evaluations", 0.0)
    out["proposals"] = int(proposals.sum())
    out["missed"] = int(missed.sum())
    out["substituted"] = int(matrices.get(label, "substituted", 0.0).sum())
    out["evaluations"] = int(evaluations.sum())
    failures = matrices.get(label, "failures", 0.0).sum()
    out["failure_share"] = float(failures / max(evaluations.sum(), 1.0))
    bounds = [matrices.get(label, f"{side}_bound_to_1pct") for side in ("lower", "upper")]
    out["median_evaluations_to_1pct_if_unrecorded"] = {
        "were_best": finite(float(median(bounds[0].reshape(-1)))),
        "were_worst": finite(float(median(bounds[1].reshape(-1)))),
    }
    logs = np.log(matrices.censored(label, "evaluations_to_1pct", "budget"))
    out["effective_runs"] = effective_sample_size(logs)
    out["runs"] = logs.size
    return out


def task_facts(table: RecordedTable) -> dict[str, Any]:
    """Say what is known of a task's record: how complete, how noisy, where its times are from."""
    space_occasions = table.occasions
    best = table.best_s
    near = 0 if best is None else int((table.value_s <= best * 1.01).sum())
    protocols = sorted({len(times) for times in table.run_times_s if times})
    return {
        "workload": table.task.workload,
        "arguments": table.task.arguments,
        "format": table.task.format,
        "machine": table.task.machine,
        "candidates": len(table),
        "good_candidates": int(np.isfinite(table.value_s).sum()),
        "enumerated": table.enumerated,
        "best": "optimum" if table.enumerated else "best recorded",
        "best_s": best,
        "candidates_within_1pct": near,
        "random_expected_evaluations_to_1pct": finite(expected_evaluations(len(table), near)),
        "occasions": int(space_occasions.sum()),
        "noise": "drawn" if bool((space_occasions > 1).any()) else "unknown",
        "repeats_in_record": protocols,
        "elapsed_from": table.elapsed_sources,
        "neighbourhood_coverage": RecordedSpace(table).neighbourhood_coverage(),
    }


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
                    if unit == "evaluations":
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
    comparisons = compare(values, resamples, scenario.confidence)
    level = 1.0 - scenario.confidence
    return {
        "metric": "auc",
        "direction": "higher is better",
        "pairs": [
            {
                "first": c.first,
                "second": c.second,
                "difference": c.difference,
                "difference_interval": [finite(end) for end in c.interval],
                "p_value": c.p_value,
                "p_holm": c.p_holm,
                "verdict": c.verdict(level),
            }
            for c in comparisons
        ],
        "ranking": ranking(values, comparisons, level),
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
        lines = {}
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
        out[unit] = {"grid": list(grid), "strategies": lines}
    return out
