"""The figures of a simulation, as plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario
from toolkit.replay.statistics.metrics import NAMES, time_ratio
from toolkit.replay.statistics.power import power
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
from toolkit.search.moves.knobs import FloatArray

Rows = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
"""Metrics, steps and curves of each seed's run, by task and label."""


class RunFigures:
    """Figures of all runs; a metric of one strategy is a matrix ``(tasks, seeds)``."""

    def __init__(self, rows: Rows, tasks: Sequence[str], scenario: Scenario) -> None:
        self.rows, self.tasks, self.labels = rows, list(tasks), scenario.labels
        self.baseline, self.confidence = scenario.baseline, scenario.confidence
        self.seeds = scenario.seeds
        draw = partial(Resamples.draw, resamples=scenario.resamples)
        self.resamples = draw(len(self.tasks), scenario.seeds)
        scores = {label: self.matrix(label, "score", np.nan)[:, :1] for label in self.labels}
        defined = np.isfinite(list(scores.values())).all(axis=(0, 2))
        # Methodology scores, of the tasks where every strategy has one.
        self.scores = {label: values[defined] for label, values in scores.items()}
        self.score_resamples = draw(int(defined.sum()), 1) if defined.any() else None

    def matrix(self, label: str, key: str, absent: float = np.inf) -> FloatArray:
        """Matrix of one metric; runs that do not have it count as ``absent``."""
        runs = [self.rows[task, label] for task in self.tasks]
        values = [[absent if run.get(key) is None else run[key] for run in of] for of in runs]
        return np.array(values, dtype=np.float64)

    def censored(self, label: str, key: str, at: str) -> FloatArray:
        """Matrix in which a run that did not reach the goal counts as its value of ``at``.

        With ``budget``, a run that ended because its seconds were used up counts as the evaluations
        that it made.
        """
        values, most = self.matrix(label, key), self.matrix(label, at)
        if at == "budget":
            runs = [self.rows[task, label] for task in self.tasks]
            timed = [[run["stopped"] == "seconds" for run in of] for of in runs]
            most = np.where(timed, np.maximum(self.matrix(label, "evaluations"), 1.0), most)
        return np.where(np.isinf(values), most, values)

    def strategy(self, label: str) -> dict[str, Any]:
        """Summarise one strategy over all tasks and seeds, every figure with its interval.

        ``median``, ``mean`` and ``max`` are over all runs (every task has the same number of
        seeds). A run that did not reach the goal is infinite: the median and the mean are null when
        that makes them infinite. ``restricted_mean`` counts such a run at its budget
        (``censored``), and so is a lower bound.
        """
        get = partial(self.matrix, label)
        make = partial(figure, resamples=self.resamples, confidence=self.confidence)
        out: dict[str, Any] = {"strategy": label}
        for name in NAMES:
            for unit, spent in (("evaluations", "budget"), ("seconds", "seconds")):
                key = f"{unit}_to_{name}"
                values = get(key)
                out |= make(f"median_{key}", values, median)
                out |= make(f"mean_{key}", values, mean)
                out |= make(f"max_{key}", values, maximum)
                out |= make(f"restricted_mean_{key}", self.censored(label, key, spent), mean)
            out |= make(f"reached_share_{name}", np.isfinite(values).astype(np.float64), mean)
        out["reached_share"] = out["reached_share_1pct"]
        out["reached_share_interval"] = out["reached_share_1pct_interval"]
        out |= make("auc", get("auc", 0.0), mean)
        out |= make("median_incumbent_regret", get("incumbent_regret"), median)
        scores = self.scores[label]
        out |= {"score_tasks": len(scores), "score": None, "score_interval": [None, None]}
        if self.score_resamples is not None:
            out |= figure("score", scores, mean, self.score_resamples, self.confidence)
        if self.baseline in self.labels:
            # S = T / T0 against the baseline's run of the same task and seed; lower is better.
            runs = [(self.rows[task, label], self.rows[task, self.baseline]) for task in self.tasks]
            ratios = [
                [time_ratio(one["steps"], base["steps"]) for one, base in zip(*pair, strict=True)]
                for pair in runs
            ]
            out |= make("median_time_ratio", np.array(ratios), median)
            out["time_ratio_baseline"] = self.baseline
        out |= make("coverage", get("coverage", 1.0), mean)
        for name in ("proposals", "missed", "substituted", "evaluations"):
            out[name] = int(get(name, 0.0).sum())
        out["failure_share"] = float(get("failures", 0.0).sum() / max(out["evaluations"], 1.0))
        lower, upper = (get(f"{side}_bound_to_1pct").reshape(-1) for side in ("lower", "upper"))
        out["median_evaluations_to_1pct_if_unrecorded"] = {
            "were_best": finite(float(median(lower))),
            "were_worst": finite(float(median(upper))),
        }
        logs = np.log(self.censored(label, "evaluations_to_1pct", "budget"))
        return out | {"effective_runs": effective_sample_size(logs), "runs": logs.size}

    def per_task(self) -> list[dict[str, Any]]:
        """One row per task and strategy."""
        out = []
        for t, task_id in enumerate(self.tasks):
            for label in self.labels:
                row: dict[str, Any] = {"task_id": task_id, "strategy": label}
                for name in NAMES:
                    for unit in ("evaluations", "seconds"):
                        values = self.matrix(label, f"{unit}_to_{name}")[t]
                        row[f"median_{unit}_to_{name}"] = finite(float(median(values)))
                    row[f"reached_share_{name}"] = float(np.isfinite(values).mean())
                row["reached_share"] = row["reached_share_1pct"]
                row["auc"] = float(self.matrix(label, "auc", 0.0)[t].mean())
                row["coverage"] = float(self.matrix(label, "coverage", 1.0)[t].mean())
                out.append(row)
        return out

    def comparisons(self) -> dict[str, Any]:
        """Proven differences, the ranking that follows, and the power of the comparison."""
        values = {label: self.matrix(label, "auc", 0.0) for label in self.labels}
        pairs = compare(values, self.resamples, self.confidence)
        return {
            "metric": "auc",
            "direction": "higher is better",
            "power": power(len(self.tasks), self.seeds, len(values), self.confidence),
            "pairs": pairs,
            "ranking": ranking(values, pairs),
        }

    def curve(self, unit: str, label: str) -> dict[str, list[float | None]]:
        """Mean relative performance (best recorded over best so far) of a strategy, with bands."""
        runs = [[run[f"curve_{unit}"] for run in self.rows[t, label]] for t in self.tasks]
        curves = np.array(runs)
        points = np.moveaxis(curves, -1, 0)
        ends = [interval(point, mean, self.resamples, self.confidence) for point in points]
        low, high = ([finite(end) for end in side] for side in zip(*ends, strict=True))
        return {"mean": curves.mean(axis=(0, 1)).tolist(), "low": low, "high": high}


def task_facts(table: RecordedTable) -> dict[str, Any]:
    """Return facts on a task's record: completeness, noise, sources of its times."""
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
        "noise": "drawn" if table.noisy else "unknown",
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
