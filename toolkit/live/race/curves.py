"""What a leg of a race measured: time and latency by trial, and when a quality was reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from toolkit.live.race.leg import LEG_FILE, STOCK
from toolkit.live.tvm.stock import stock_trials


def leg_curve(folder: Path, task: str, seed: int, arm: str) -> dict[str, Any]:
    """Read a finished leg.

    Returns
    -------
    ``task``, ``seed``, ``arm``, ``seconds`` (the whole leg), ``trials``: a row each with
    ``clock_s`` (when its latency was known), ``latency_s`` (as the search read it, ``None``:
    failed), ``best_s`` (lowest so far) and ``record`` (its place in the leg's database, -1 where it
    has none); ``named``, where the best programs were read again, ``trial`` and ``clock_s`` of the
    winner.
    """
    summary = orjson.loads((folder / LEG_FILE).read_bytes())
    rows = _stock_rows(folder) if arm == STOCK else _own_rows(folder)
    best: float | None = None
    for row in rows:
        latency = row["latency_s"]
        if latency is not None and (best is None or latency < best):
            best = latency
        row["best_s"] = best
    return {
        "task": task,
        "seed": seed,
        "arm": arm,
        "folder": str(folder),
        "seconds": summary["seconds"],
        "trials": rows,
        "named": None if arm == STOCK else _named(folder, rows),
    }


def _stock_rows(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for trial in stock_trials(folder):
        rows.append(
            {"clock_s": trial["clock_s"], "latency_s": trial["latency_s"], "batch": trial["batch"]}
        )
    return rows


def _own_rows(folder: Path) -> list[dict[str, Any]]:
    trials = (folder / "database_trials.jsonl").read_bytes().splitlines()
    records = (folder / "database_tuning_record.json").read_bytes().splitlines()
    rows = []
    for position, (line, record) in enumerate(zip(trials, records, strict=True)):
        trial = orjson.loads(line)
        times = trial.get("searched_s") or orjson.loads(record)[1][1]
        ok = trial["state"] == "ok"
        rows.append(
            {
                "clock_s": trial["clock_s"],
                "latency_s": sum(times) / len(times) if ok else None,
                "batch": 0,
                "record": position,
            }
        )
    # Candidates that TVM made no program of were paid for as well: they count as trials.
    refused = folder / "database_refused.jsonl"
    if refused.is_file():
        for line in refused.read_bytes().splitlines():
            at = orjson.loads(line).get("clock_s")
            if at is not None:
                rows.append({"clock_s": at, "latency_s": None, "batch": 0, "record": -1})
    rows.sort(key=lambda row: row["clock_s"])
    return rows


def _named(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The winner of the last time that the best programs were read again."""
    lines = map(orjson.loads, (folder / "database_trials.jsonl").read_bytes().splitlines())
    places = {
        (-line["final_clock_s"], line["final_place"]): position
        for position, line in enumerate(lines)
        if line["state"] == "ok" and "final_place" in line
    }
    if not places:
        return None
    (clock, _), record = min(places.items())
    trial = next(number for number, row in enumerate(rows, start=1) if row["record"] == record)
    return {"trial": trial, "clock_s": -clock}


def final_latency_s(leg: dict[str, Any]) -> float | None:
    """Lowest latency that a leg read, ``None`` when nothing succeeded."""
    trials = leg["trials"]
    found: float | None = trials[-1]["best_s"] if trials else None
    return found


def reached(leg: dict[str, Any], latency_s: float) -> tuple[int, float] | None:
    """Number of trials and seconds after which a leg had read so low a latency; ``None``: never."""
    for number, row in enumerate(leg["trials"], start=1):
        if row["best_s"] is not None and row["best_s"] <= latency_s:
            return number, float(row["clock_s"])
    return None
