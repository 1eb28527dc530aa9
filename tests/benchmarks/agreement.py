"""How well replays forecast live runs: signs of comparisons, and what their intervals cover."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from toolkit.records import Trial
from toolkit.replay import RecordedSpace
from toolkit.replay.forecast.forecast import seen_scores
from toolkit.replay.record.readings import Readings
from toolkit.replay.statistics.statistics import holm

FloatArray = NDArray[np.float64]
Runs = dict[str, dict[str, list[FloatArray]]]
"""Task → strategy → one array ``(2, evaluations)`` a run: latencies in seconds as the run saw them,
and those candidates' recorded values; NaN for a failure."""
Values = dict[str, dict[str, FloatArray]]
"""One score: task → strategy → ``(runs,)``."""
Draws = dict[str, dict[str, list[list[FloatArray]]]]
"""Task → strategy → draw → what ``toolkit.replay.forecast.forecast`` gives for each run."""
Trials = dict[str, list[Trial]]

ALL = "mean over the tasks"
# As 'seen_scores' gives them.
SCORES = ("auc", "final", "evaluations to 10 %")
NOMINAL, DECIDED = 0.90, 0.95
DRAWS = 4000
CONTROLS = 200
# Levels of the machine that each draw is looked at with.
LEVELS = 20


def values(
    runs: Runs, best_s: Mapping[str, float], budget: int, *, row: int = 0
) -> dict[str, Values]:
    """All scores of all runs; under ``ALL`` the mean over the tasks, run by run."""
    out: dict[str, Values] = {name: {} for name in SCORES}
    for task, by_label in runs.items():
        for label, mine in by_label.items():
            rows = np.array([seen_scores(run[row], best_s[task], budget) for run in mine])
            for name, column in zip(SCORES, rows.T, strict=True):
                out[name].setdefault(task, {})[label] = column
    for tasks in out.values():
        _add_mean(tasks)
    return out


def _add_mean(tasks: Values) -> None:
    labels = list(next(iter(tasks.values())))
    tasks[ALL] = {label: np.mean([t[label] for t in tasks.values()], axis=0) for label in labels}


def forecast_values(
    draws: Draws, levels: Mapping[str, FloatArray], best_s: Mapping[str, float], budget: int
) -> dict[str, Values]:
    """All scores of runs in posterior draws (``replay.forecast.forecast``): means of a draw's runs.

    ``levels``: by task ``(draws, levels)``, logarithms of the machine's level; each draw counts
    once with every level. A number of draw and level is the same for all strategies.
    """
    out: dict[str, Values] = {name: {} for name in SCORES}
    for task, by_label in draws.items():
        for label, mine in by_label.items():
            rows = [
                np.mean(
                    [seen_scores(run[0] * level, best_s[task], budget) for run in alike], axis=0
                )
                for alike, drawn in zip(mine, np.exp(levels[task]), strict=True)
                for level in drawn
            ]
            for name, column in zip(SCORES, np.array(rows).T, strict=True):
                out[name].setdefault(task, {})[label] = column
    for tasks in out.values():
        _add_mean(tasks)
    return out


def _middle(draws: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - NOMINAL) / 2, (1 + NOMINAL) / 2])
    return float(low), float(high)


def prediction(of_runs: FloatArray, n: int, seed: int = 0) -> tuple[float, float]:
    """Interval in which the mean of n further runs lies with probability ``NOMINAL``.

    From many runs, by drawing n of them again and again: a prediction interval, which does not
    shrink to nothing with more replays as that of the expected value does.
    """
    rng = np.random.default_rng([0xA6EE, seed])
    return _middle(of_runs[rng.integers(len(of_runs), size=(DRAWS, n))].mean(axis=1))


def difference(pairs: FloatArray) -> tuple[float, float, float, float]:
    """Mean of paired differences, its ``DECIDED`` t interval, and the p-value of no difference."""
    mean, n = float(pairs.mean()), len(pairs)
    spread = float(pairs.std(ddof=1) / np.sqrt(n))
    if spread == 0.0:
        return mean, mean, mean, float(mean == 0.0)
    reach = float(stats.t.ppf((1 + DECIDED) / 2, n - 1)) * spread
    p_value = 2 * float(stats.t.sf(abs(mean) / spread, n - 1))
    return mean, mean - reach, mean + reach, p_value


def judge(replay: Values, live: Values, forecast: Values | None = None) -> dict[str, Any]:
    """Compare one score of replayed and live runs: every pair of strategies, on every task.

    Means and intervals are those of ``forecast`` (draws of the mean of so many live runs), without
    it those of the replays and their own spread. A pair is *decided* when the interval of its
    difference leaves 0 out. Signs are compared in the pairs that the live runs decided; once more
    in those that the replays decided too.
    """
    pairs: list[dict[str, Any]] = []
    figures: list[dict[str, Any]] = []
    for task, replayed in replay.items():
        measured = live[task]
        for label, runs in replayed.items():
            if forecast is None:
                expected = float(runs.mean())
                low, high = prediction(runs, len(measured[label]))
            else:
                expected = float(forecast[task][label].mean())
                low, high = _middle(forecast[task][label])
            mean = float(measured[label].mean())
            figures.append(
                {"task": task, "strategy": label, "replay": expected, "live": mean}
                | {"low": low, "high": high, "covered": bool(low <= mean <= high)}
            )
        for a, b in combinations(replayed, 2):
            mean, low, high, _ = difference(replayed[a] - replayed[b])
            live_mean, live_low, live_high, p = difference(measured[a] - measured[b])
            if forecast is None:
                wide = prediction(replayed[a] - replayed[b], len(measured[a]))
            else:
                drawn = forecast[task][a] - forecast[task][b]
                wide, mean = _middle(drawn), float(drawn.mean())
                low, high = wide
            pairs.append(
                {"task": task, "first": a, "second": b, "replay": mean, "live": live_mean}
                | {"replay_interval": [low, high], "live_interval": [live_low, live_high]}
                | {"decided_in_replay": not low <= 0 <= high, "p_live": p}
                | {"decided_live": not live_low <= 0 <= live_high}
                | {"agrees": bool(mean * live_mean > 0), "predicted": list(wide)}
                | {"covered": bool(wide[0] <= live_mean <= wide[1])}
            )
    single = [row for row in pairs if row["task"] != ALL]
    for row, adjusted in zip(single, holm([row["p_live"] for row in single]), strict=True):
        row["decided_after_holm"] = adjusted <= 1 - DECIDED
    return {"pairs": pairs, "figures": figures, "summary": _summary(pairs, figures)}


def _summary(pairs: list[dict[str, Any]], figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the pairs and figures of single tasks; those of the mean over them apart."""
    out: dict[str, Any] = {}
    for name, wanted in (("single tasks", False), (ALL, True)):
        mine = [row for row in pairs if (row["task"] == ALL) is wanted]
        decided = [row for row in mine if row["decided_live"]]
        groups = {
            "decided live": decided,
            "decided live and in replay": [row for row in decided if row["decided_in_replay"]],
            "decided live after Holm": [row for row in mine if row.get("decided_after_holm")],
        }
        covered = [row["covered"] for row in figures if (row["task"] == ALL) is wanted]
        out[name] = {
            "pairs": len(mine),
            **{
                key: {"agree": sum(row["agrees"] for row in rows), "of": len(rows)}
                for key, rows in groups.items()
            },
            "figures covered": {"agree": sum(covered), "of": len(covered)},
            "differences covered": {"agree": sum(row["covered"] for row in mine), "of": len(mine)},
        }
    return out


def control(replay: Values, n: int) -> dict[str, Any]:
    """What would be seen if live runs were replays: n replays in the live runs' place.

    Mean shares over many draws of n seeds. Decided pairs do not agree in all of them even so: of
    pairs that do not differ, one in twenty is decided by chance.
    """
    rng = np.random.default_rng(0xC0)
    count = len(next(iter(next(iter(replay.values())).values())))
    found: dict[str, list[float]] = {}
    for _ in range(CONTROLS):
        mine = rng.permutation(count)[:n]
        rest = np.setdiff1d(np.arange(count), mine)
        one = judge(_taken(replay, rest), _taken(replay, mine))["summary"]["single tasks"]
        for key, value in one.items():
            if isinstance(value, dict) and value["of"]:
                found.setdefault(key, []).append(value["agree"] / value["of"])
    return {key: float(np.mean(shares)) for key, shares in found.items()}


def _taken(runs: Values, index: NDArray[np.int64]) -> Values:
    return {task: {label: v[index] for label, v in by.items()} for task, by in runs.items()}


def facts(space: RecordedSpace, trials: list[Trial]) -> dict[str, Any]:
    """What lies behind the agreement on a task: the record, and live over recorded latencies."""
    table = space.table
    logs: dict[int, list[float]] = {}
    for number, trial in zip(space.numbers_of([t.candidate for t in trials]), trials, strict=True):
        if trial.latency_s is not None and number >= 0 and np.isfinite(table.value_s[number]):
            ratio = float(np.log(trial.latency_s / table.value_s[number]))
            logs.setdefault(number, []).append(ratio)
    means = {number: float(np.mean(found)) for number, found in logs.items()}
    ranked = np.argsort(table.value_s)[: max(1, len(table) // 20)].tolist()
    fast = [means[number] for number in ranked if number in means]
    again = [float(np.var(found, ddof=1)) for found in logs.values() if len(found) > 1]
    return {
        "workload": space.task.workload,
        "candidates": len(table),
        "failed in the record": int(np.isnan(table.value_s).sum()),
        "best recorded (us)": 1e6 * float(table.best_s or np.nan),
        "recorded share of neighbourhoods": space.neighbourhood_coverage(),
        "measured live": len(means),
        "live over recorded, median": _exp_median(list(means.values())),
        "live over recorded, log sd": float(np.std(list(means.values()))) if means else None,
        "live over recorded, fastest 5 %": _exp_median(fast),
        "reading to reading, log sd": float(np.sqrt(np.mean(again))) if again else None,
    }


def _exp_median(logs: list[float]) -> float | None:
    return float(np.exp(np.median(logs))) if logs else None


def compare(
    spaces: Mapping[str, RecordedSpace],
    replays: Runs,
    live: Runs,
    trials: Trials,
    budget: int,
    draws: Draws,
    readings: Mapping[str, Readings],
) -> dict[str, Any]:
    """All figures (JSON-ready): as they are, and by what may be behind a disagreement.

    *forecast*: intervals that know of noise and drift (``toolkit.replay.forecast.forecast``), from
    the record alone.

    Where live runs left the record (nothing of it was measured live) two of these are not there.
    *without drift*: live latencies over the task's median of live over recorded ones, so that a
    machine that became faster or slower since makes no difference. *by recorded values*: each
    evaluation of either side counts as its candidate's recorded value, so that only what the
    strategies chose differs. *if live were replays*: ``control``.
    """
    best = {task: float(space.table.best_s or np.nan) for task, space in spaces.items()}
    known = {task: facts(space, trials[task]) for task, space in spaces.items()}
    slower = {task: one["live over recorded, median"] or 1.0 for task, one in known.items()}
    now = {task: seconds * slower[task] for task, seconds in best.items()}
    n = len(next(iter(next(iter(live.values())).values())))
    replayed, seen = values(replays, best, budget), values(live, best, budget)
    steady = values(live, now, budget)
    chosen = values(replays, best, budget, row=1), values(live, best, budget, row=1)
    judged = {}
    drawn = forecast_values(draws, _levels(readings, draws), best, budget)
    for name in SCORES:
        judged[name] = judge(replayed[name], seen[name])
        judged[name]["forecast"] = judge(replayed[name], seen[name], drawn[name])
        if all(one["measured live"] for one in known.values()):
            judged[name]["without drift"] = judge(replayed[name], steady[name])["summary"]
            judged[name]["by recorded values"] = judge(chosen[0][name], chosen[1][name])["summary"]
        judged[name]["if live were replays"] = control(replayed[name], n)
    seeds = len(next(iter(next(iter(replays.values())).values())))
    for task, one in readings.items():
        known[task]["level, log sd"] = one.level
        known[task]["noise, log sd"] = one.noise
    return {"tasks": known, "live runs": n, "replays": seeds, "scores": judged}


def _levels(readings: Mapping[str, Readings], draws: Draws) -> dict[str, FloatArray]:
    out = {}
    for task, by_label in draws.items():
        count = len(next(iter(by_label.values())))
        # The same for all tasks: it is the machine that is slower on another day.
        rng = np.random.default_rng(0x1E)
        out[task] = readings[task].levels(rng, count * LEVELS).reshape(count, LEVELS)
    return out


def show(result: dict[str, Any]) -> None:
    """Print shares, every sign that differs, and every figure beside its interval."""
    for fact in result["tasks"].values():
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in fact.items()}
        print("; ".join(f"{key}: {value}" for key, value in shown.items()))
    named = {task: fact["workload"] for task, fact in result["tasks"].items()}
    for name, judged in result["scores"].items():
        print(f"\n{name} (decided by {DECIDED:.0%} intervals, forecast by {NOMINAL:.0%} intervals)")
        columns = {"as seen": judged["summary"], "forecast": judged["forecast"]["summary"]}
        columns |= {k: judged[k] for k in ("without drift", "by recorded values") if k in judged}
        print(" " * 60 + "".join(f"{column:>20}" for column in columns) + "  if replays")
        for group, counts in judged["summary"].items():
            for key in [key for key in counts if key != "pairs"]:
                cells = "".join(f"{_share(c[group][key]):>20}" for c in columns.values())
                chance = judged["if live were replays"].get(key) if group != ALL else None
                print(f"  {group + ', ' + key:58}{cells}  " + (f"{chance:.0%}" if chance else ""))
        for row in judged["pairs"]:
            if row["decided_live"] and not row["agrees"]:
                text = (
                    f"  ! {named.get(row['task'], row['task'])}, {row['first']} - {row['second']}"
                )
                text += ": replay {:+.4f} [{:+.4f}, {:+.4f}]".format(
                    row["replay"], *row["replay_interval"]
                )
                print(
                    text
                    + ", live {:+.4f} [{:+.4f}, {:+.4f}]".format(row["live"], *row["live_interval"])
                )
        for row in judged["forecast"]["figures"]:
            mark = " " if row["covered"] else "x"
            place = f"{named.get(row['task'], row['task'])}, {row['strategy']}"
            interval = f"{row['replay']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"
            print(f"  {mark} {place}: replay {interval}, live {row['live']:.4f}")


def _share(count: dict[str, int]) -> str:
    return f"{count['agree']} of {count['of']}"
