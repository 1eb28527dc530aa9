"""Curves of a race's legs: time and latency by trial, and when a leg reached which quality.

The lowest of five hundred readings is a lucky one. On a machine whose readings vary by a tenth, an
arm with the same program may never read as low. So the programs with which an arm got better are
built again and measured against stock's final program. The time of an arm ends when it had, and
kept, a program that is as good in this second measurement, not in the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit.live.confirm.rules import INCUMBENT, TWIN, trimmed_interval
from toolkit.live.race.baselines import BASELINES, named_trial
from toolkit.live.race.leg import LEG_FILE, STOCK
from toolkit.live.tvm.stock import TRIALS_FILE

AS_GOOD = 0.01
"""A program is as good as stock's final program if it takes at most this share longer."""

NEAR = 1.3
"""Programs that read slower than stock's best by more than this factor are not measured again."""

MOST = 6
"""Programs of a leg that are measured again, evenly spread over those that lowered its best."""


def leg_curve(folder: Path, task: str, seed: int, arm: str) -> dict[str, Any]:
    """Read a finished leg.

    Returns ``task``, ``seed``, ``arm``, ``folder``, and ``seconds`` (the whole leg). ``trials`` has
    a row for each trial: ``clock_s`` (when its latency was known), ``latency_s`` (in the search;
    ``None``: failed), ``best_s`` (lowest so far), and ``record`` (position in our database; -1:
    none) or ``batch`` (TVM's own tuner). ``named`` has ``trial`` and ``clock_s`` of the winner, if
    the leg measured its best programs again.
    """
    rows = _lines(folder / TRIALS_FILE) or _own_rows(folder)
    best: float | None = None
    for row in rows:
        read_s = [seconds for seconds in (best, row["latency_s"]) if seconds is not None]
        row["best_s"] = best = min(read_s, default=None)
    return {
        "task": task,
        "seed": seed,
        "arm": arm,
        "folder": str(folder),
        "seconds": orjson.loads((folder / LEG_FILE).read_bytes())["seconds"],
        "trials": rows,
        "named": named_trial(folder) if arm in BASELINES else _named(folder, rows),
    }


def _lines(path: Path) -> list[Any]:
    """Return a file's JSON lines; none if there is no file."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.is_file() else []


def _own_rows(folder: Path) -> list[dict[str, Any]]:
    trials = _lines(folder / "database_trials.jsonl")
    records = _lines(folder / "database_tuning_record.json")
    rows = []
    for position, (trial, record) in enumerate(zip(trials, records, strict=True)):
        times = trial.get("searched_s") or record[1][1]
        latency_s = sum(times) / len(times) if trial["state"] == "ok" else None
        rows.append({"clock_s": trial["clock_s"], "latency_s": latency_s, "record": position})
    # Candidates that TVM refused have cost time as well: they count as trials.
    rows += [
        {"clock_s": line["clock_s"], "latency_s": None, "record": -1}
        for line in _lines(folder / "database_refused.jsonl")
        if line.get("clock_s") is not None
    ]
    rows.sort(key=lambda row: row["clock_s"])
    return rows


def _named(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the winner of the last time that the best programs were measured again."""
    places = {
        (-line["final_clock_s"], line["final_place"]): position
        for position, line in enumerate(_lines(folder / "database_trials.jsonl"))
        if line["state"] == "ok" and "final_place" in line
    }
    if not places:
        return None
    (clock, _), record = min(places.items())
    trial = next(number for number, row in enumerate(rows, start=1) if row["record"] == record)
    return {"trial": trial, "clock_s": -clock}


def final_latency_s(leg: Mapping[str, Any]) -> float | None:
    """Return the lowest latency that a leg read; ``None`` if no trial succeeded."""
    trials = leg["trials"]
    found: float | None = trials[-1]["best_s"] if trials else None
    return found


def reached(leg: Mapping[str, Any], latency_s: float) -> tuple[int, float] | None:
    """Return trials and seconds until a leg first read this latency or less; ``None``: never."""
    for number, row in enumerate(leg["trials"], start=1):
        if row["best_s"] is not None and row["best_s"] <= latency_s:
            return number, float(row["clock_s"])
    return None


@dataclass(frozen=True, slots=True)
class Held:
    """A program that a leg would have returned if it had ended at some time.

    ``name`` is its name among the challengers (``None``: stock's final program). ``trial`` is the
    number of its trial (from 1), and ``read_s`` the latency in that trial. ``trials`` and
    ``clock_s`` are what the leg had spent by then.
    """

    name: str | None
    trial: int
    trials: int
    clock_s: float
    read_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form: trial, trials and clock time."""
        return {"trial": self.trial, "trials": self.trials, "clock_s": self.clock_s}


def steps_of(leg: Mapping[str, Any], stock_s: float) -> list[Held]:
    """Return the programs of a leg that are to be measured again, the final one last.

    ``stock_s`` is stock's lowest latency. The first trial that read this latency or less is
    included. A leg that chose its winner by measuring its best programs again (``leg["named"]``)
    holds this winner from then on.
    """
    best_s: list[Any] = [None, *(row["best_s"] for row in leg["trials"])]
    lowered = [n for n, (before, now) in enumerate(pairwise(best_s), start=1) if now != before]
    if not lowered:
        return []
    near = [number for number in lowered if best_s[number] <= NEAR * stock_s] or lowered[-1:]
    places = np.unique(np.linspace(0, len(near) - 1, MOST).round().astype(int)).tolist()
    chosen = {near[place] for place in places}
    if first := reached(leg, stock_s):
        chosen.add(first[0])
    held = [(number, number, leg["trials"][number - 1]["clock_s"]) for number in sorted(chosen)]
    named = leg.get("named")
    if named is not None and named["trial"] != held[-1][0]:
        held.append((named["trial"], len(leg["trials"]), named["clock_s"]))
    steps = []
    for trial, trials, clock_s in held:
        read_s = leg["trials"][trial - 1]["latency_s"]
        # Stock may have chosen its winner in the same way: it need not have the lowest reading.
        is_incumbent = leg["arm"] == STOCK and trial == held[-1][0]
        name = None if is_incumbent else f"{leg['arm']}, trial {trial}"
        steps.append(Held(name, trial, trials, clock_s, read_s))
    return steps


def as_good_from(
    names: Sequence[str | None],
    readings: Mapping[str, Sequence[float]],
    tolerance: float = AS_GOOD,
) -> tuple[int, float | None] | None:
    """Find the first program of a leg from which on all are as good as stock's final one.

    ``names`` are the programs in the order of the search (``None``: stock's final one).
    ``readings`` are seconds by name, one value for each block. A program is as good if it takes at
    most the share ``tolerance`` longer. Every second block selects the program; the other blocks
    estimate its latency, so that the selection does not bias it.

    Returns its place, and its latency over stock's final one (``None`` with a single block).
    ``None`` if the last program is not as good.
    """
    incumbent = np.log(np.array([readings[INCUMBENT], readings[TWIN]])).mean(axis=0)
    logs = [
        np.zeros(len(incumbent)) if name is None else np.log(np.array(readings[name])) - incumbent
        for name in names
    ]
    found = None
    for place in range(len(names) - 1, -1, -1):
        if trimmed_interval(logs[place][::2], 0.95)[0] > math.log1p(tolerance):
            break
        found = place
    if found is None:
        return None
    rest = logs[found][1::2]
    return found, math.exp(trimmed_interval(rest, 0.95)[0]) if len(rest) else None
