"""Summary of a race: S by task, geometric means with bootstrap intervals, final latencies.

S is the measure of Han et al. 2025 (section 5): S = T / T0. T0 is the time in which the default
search reaches its final quality; T is the time in which the other search reaches it. Below 1 is
faster. Here S is computed for wall clock and for trials, and in two ways: from the latencies that
the searches read, and from the latencies measured afterwards (``curves.as_good_from``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from toolkit.atomic import replacing, write_atomically
from toolkit.live.race.curves import final_latency_s, reached
from toolkit.live.race.leg import STOCK
from toolkit.live.race.quality import MOMENTS_S, TOLERANCES, add_moments, add_tolerances
from toolkit.training.evaluate.bootstrap import expanded_tail

RESAMPLES = 10_000


def compare_legs(stock: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return S of one leg against stock's, from the latencies that the searches read.

    ``s_seconds`` and ``s_trials`` are ``None`` if the leg did not reach stock's best.
    ``at_least_seconds`` and ``at_least_trials`` are then what it spent, over what stock needed.
    Stock knows all trials of a batch when the batch ends. ``s_seconds_strict`` counts stock's best
    as known at its place within the batch, which favours stock.
    """
    target = final_latency_s(stock)
    row: dict[str, Any] = {
        "task": stock["task"],
        "seed": stock["seed"],
        "arm": other["arm"],
        "stock_final_s": target,
        "final_s": final_latency_s(other),
        "stock_seconds": stock["seconds"],
        "seconds": other["seconds"],
        "stock_trials": len(stock["trials"]),
        "trials": len(other["trials"]),
        "s_seconds": None,
        "s_seconds_strict": None,
        "s_trials": None,
    }
    theirs = None if target is None else reached(stock, target)
    if target is None or theirs is None:
        return row
    row["stock_reached_trials"], row["stock_reached_seconds"] = theirs
    # If stock stopped improving in its first half, the task was too easy to show much.
    row["stock_improves_late"] = theirs[0] > len(stock["trials"]) / 2
    mine = reached(other, target)
    if mine is None:
        row["at_least_seconds"] = other["seconds"] / theirs[1]
        row["at_least_trials"] = len(other["trials"]) / theirs[0]
        return row
    row["reached_trials"], row["reached_seconds"] = mine
    row["s_seconds"] = mine[1] / theirs[1]
    row["s_seconds_strict"] = mine[1] / _within_batch(stock, theirs[0])
    row["s_trials"] = mine[0] / theirs[0]
    return row


def add_quality(row: dict[str, Any], confirmed: dict[str, Any]) -> None:
    """Add S by quality to a leg's row: when each arm had a program as good as stock's final one.

    The rule is the same for both sides: stock's time is when stock had such a program, which may be
    long before its lowest reading. ``quality_seconds`` and ``quality_trials`` are ``None`` if the
    arm never had one; ``quality_at_least_*`` is then what it spent, over what stock needed.
    """
    theirs, mine = (confirmed["as_good"].get(arm) for arm in (STOCK, row["arm"]))
    row["quality_seconds"] = row["quality_trials"] = row["quality_ratio"] = None
    if theirs is None:
        return
    if mine is None:
        row["quality_at_least_seconds"] = row["seconds"] / theirs["clock_s"]
        row["quality_at_least_trials"] = row["trials"] / theirs["trials"]
        return
    row["quality_seconds"] = mine["clock_s"] / theirs["clock_s"]
    row["quality_trials"] = mine["trials"] / theirs["trials"]
    row["quality_ratio"] = mine["ratio"]


def _within_batch(stock: dict[str, Any], number: int) -> float:
    """Return seconds at trial ``number`` if a batch's time is spread evenly over its trials."""
    rows = stock["trials"]
    batch = [i for i, row in enumerate(rows) if row["batch"] == rows[number - 1]["batch"]]
    begin = rows[batch[0] - 1]["clock_s"] if batch[0] else 0.0
    end = rows[batch[-1]]["clock_s"]
    return float(begin + (end - begin) * (number - batch[0]) / len(batch))


def geometric_mean(values: Sequence[tuple[str, int, float]]) -> dict[str, Any] | None:
    """Return the geometric mean of ``(task, seed, value)``; bootstrap over tasks, then seeds.

    The interval's percentiles are widened for few tasks (``expanded_tail``). Every task counts the
    same, however many seeds it has. ``None`` without values. The interval is ``None`` with fewer
    than two tasks.
    """
    if not values:
        return None
    tasks = sorted({task for task, _, _ in values})
    logs = [np.array([math.log(v) for t, _, v in values if t == task]) for task in tasks]
    centre = float(np.mean([each.mean() for each in logs]))
    answer: dict[str, Any] = {"value": math.exp(centre), "tasks": len(tasks), "interval": None}
    if len(tasks) >= 2:
        rng = np.random.default_rng([0xACE, 0])
        drawn = (RESAMPLES, len(logs))
        # For each task: means over resampled seeds, one for each place where it may be drawn.
        seeds = [d[rng.integers(len(d), size=(*drawn, len(d)))].mean(axis=2) for d in logs]
        picked = rng.integers(len(logs), size=drawn)
        means = np.take_along_axis(np.stack(seeds), picked[None], axis=0)[0].mean(axis=1)
        tail = expanded_tail(len(tasks))
        low, high = np.quantile(means, [tail, 1.0 - tail])
        answer["interval"] = [math.exp(low), math.exp(high)]
    return answer


def _entries(
    rows: Sequence[Mapping[str, Any]], what: str, key: str, value: float
) -> list[tuple[str, int, Any]]:
    """Return task, seed, and the entry with ``key`` = ``value``, from the list ``what`` of rows."""
    return [
        (row["task"], row["seed"], entry)
        for row in rows
        for entry in row.get(what, ())
        if entry[key] == value
    ]


def sum_tolerances(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return means of S over an arm's legs for each tolerance, and how many legs ``reached`` it.

    See ``add_tolerances``. A leg that did not reach it counts with what it spent.
    """
    found = []
    for tolerance in TOLERANCES:
        legs = _entries(rows, "by_tolerance", "tolerance", tolerance)
        means = {
            what: geometric_mean([(task, seed, leg[what]) for task, seed, leg in legs])
            for what in ("seconds", "trials")
        }
        reached = sum(leg["reached"] for _, _, leg in legs)
        found.append({"tolerance": tolerance, "legs": len(legs), "reached": reached, **means})
    return found


def sum_moments(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean latencies that an arm and stock held at each moment (``add_moments``).

    ``held`` and ``stock_held`` are how many of the ``legs`` had a program. A leg without a program
    is in no mean.
    """
    found = []
    for seconds in MOMENTS_S:
        legs = _entries(rows, "by_moment", "seconds", seconds)
        entry: dict[str, Any] = {"seconds": seconds, "legs": len(legs)}
        for what, count in (("ratio", "held"), ("stock_ratio", "stock_held")):
            values = [(task, seed, leg[what]) for task, seed, leg in legs if leg[what] is not None]
            entry[what], entry[count] = geometric_mean(values), len(values)
        found.append(entry)
    return found


def report_race(
    legs: Sequence[dict[str, Any]], confirmed: Sequence[dict[str, Any]], arms: Sequence[str]
) -> dict[str, Any]:
    """Return a row for each leg against stock's and, by arm, geometric means with intervals.

    Legs that did not reach stock's final quality enter the means with what they spent; ``s_*`` is
    then a lower bound. ``not_reached`` is the number of these legs.
    """
    stock = {(leg["task"], leg["seed"]): leg for leg in legs if leg["arm"] == STOCK}
    rows = [
        compare_legs(stock[leg["task"], leg["seed"]], leg) for leg in legs if leg["arm"] != STOCK
    ]
    again = {(one["task"], one["seed"]): one for one in confirmed}
    for row in rows:
        if found := again.get((row["task"], row["seed"])):
            add_quality(row, found)
            if found["steps"]:
                add_tolerances(row, found)
                add_moments(row, found)

    def mean(arm: str, what: str, least: str | None = None) -> dict[str, Any] | None:
        """Return the mean of ``what`` over an arm's rows, with ``least`` where it has no value."""
        values = [
            (row["task"], row["seed"], value)
            for row in rows
            if row["arm"] == arm and (value := row.get(what) or row.get(least or what))
        ]
        return geometric_mean(values)

    def confirmed_mean(arm: str, what: str) -> dict[str, Any] | None:
        return geometric_mean(
            [(c["task"], c["seed"], c[what][arm]["ratio"]) for c in confirmed if arm in c[what]]
        )

    summary = {}
    for arm in arms:
        mine = [row for row in rows if row["arm"] == arm and row["stock_final_s"] is not None]
        summary[arm] = {
            "s_seconds": mean(arm, "s_seconds", "at_least_seconds"),
            "s_trials": mean(arm, "s_trials", "at_least_trials"),
            "quality_seconds": mean(arm, "quality_seconds", "quality_at_least_seconds"),
            "quality_trials": mean(arm, "quality_trials", "quality_at_least_trials"),
            "quality_ratio": mean(arm, "quality_ratio"),
            "quality_not_reached": sum("quality_at_least_seconds" in row for row in mine),
            "s_seconds_strict": mean(arm, "s_seconds_strict"),
            "not_reached": sum(row["s_seconds"] is None for row in mine),
            "legs": len(mine),
            "undecided": sum(one.get("undecided") is not None for one in confirmed),
            "final_ratio": confirmed_mean(arm, "finals"),
            "first_ratio": confirmed_mean(arm, "firsts"),
            "by_tolerance": sum_tolerances(mine),
            "by_moment": sum_moments(mine),
        }
    return {"rows": rows, "summary": summary, "confirmed": list(confirmed)}


def write_report(out: Path, result: Mapping[str, Any], legs: Sequence[dict[str, Any]]) -> None:
    """Write ``race.json``, and the curves of all legs as ``curves.parquet`` and ``curves.json``."""
    curves = [
        {
            **{name: leg[name] for name in ("task", "seed", "arm")},
            "trial": number,
            **{name: row[name] for name in ("clock_s", "latency_s", "best_s")},
        }
        for leg in legs
        for number, row in enumerate(leg["trials"], start=1)
    ]
    schema = {"task": pl.String, "seed": pl.Int64, "arm": pl.String, "trial": pl.Int64}
    schema |= dict.fromkeys(("clock_s", "latency_s", "best_s"), pl.Float64)
    with replacing(out / "curves.parquet") as temporary:
        pl.DataFrame(curves, schema=schema).write_parquet(temporary)
    for name, content in (("curves.json", curves), ("race.json", result)):
        write_atomically(out / name, orjson.dumps(content, option=orjson.OPT_INDENT_2))
