"""Searches on a device, finished or under way: how far each task is, and how fast its best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from toolkit.atomic import running
from toolkit.locks import LOCK_FILE
from toolkit.reports.page.inputs import SEARCH_FILE, Section, read_json, reading

MADE_BY = "toolkit tune"
POINTS = 60
"""About this many points are drawn of a curve, however many trials a search has."""


def search_sections(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Summarise the databases of ``toolkit tune``, also while they are written.

    ``state`` is ``finished``, ``under way`` or ``interrupted``. A task has its trials, those that
    failed, its best latency in seconds (``None`` before the first success) and ``curves`` as the
    dataset's tasks have them: best so far (1: the last) over trials.
    """
    found = []
    for folder in folders:
        with reading(folder / SEARCH_FILE, MADE_BY, folder) as settings:
            found.append(_search(folder, settings))
    return found


def _search(folder: Path, settings: Section) -> dict[str, Any]:
    about: Section = {}
    if (folder / "collection.json").is_file():
        about = read_json(folder / "collection.json", MADE_BY)
    trials = list(_lines(folder / "database_trials.jsonl"))
    records = list(_lines(folder / "database_tuning_record.json"))
    own: dict[int, list[tuple[Any, Any]]] = {}
    # The two files are written one after the other: the last line may be in only one of them.
    for trial, record in zip(trials, records, strict=False):
        own.setdefault(record[0], []).append((trial, record))
    return {
        "path": str(folder),
        "state": _state(folder),
        "strategy": settings.get("strategy"),
        "target": settings.get("target"),
        "machine": about.get("machine"),
        "trials": len(trials),
        "seconds": max((trial.get("clock_s") or 0.0 for trial in trials), default=0.0),
        "tasks": [
            {"name": task["name"], "weight": task["weight"]}
            | _task(own.get(task["workload_index"], []))
            for task in about.get("tasks", [])
        ],
    }


def _task(own: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    best: float | None = None
    so_far: list[float | None] = []
    for trial, record in own:
        if trial["state"] == "ok":
            times = trial.get("searched_s", record[1][1])
            latency = sum(times) / len(times)
            best = latency if best is None else min(best, latency)
        so_far.append(best)
    step = max(1, len(so_far) // POINTS)
    at = sorted({*range(0, len(so_far), step), len(so_far) - 1} - {-1})
    points = [(n + 1, best / known) for n in at if best and (known := so_far[n])]
    curve = {
        "records": len(own),
        "at": [n for n, _ in points],
        "relative": [relative for _, relative in points],
    }
    return {
        "trials": len(own),
        "failed": sum(trial["state"] != "ok" for trial, _ in own),
        "best_s": best,
        "curves": [curve] if points else [],
    }


def _state(folder: Path) -> str:
    try:
        if running(int((folder / LOCK_FILE).read_text(encoding="ascii"))):
            return "under way"
    except (OSError, ValueError):
        pass
    done, trials = folder / "tuned.json", folder / "database_trials.jsonl"
    if not done.is_file():
        return "interrupted"
    later = trials.is_file() and trials.stat().st_mtime_ns > done.stat().st_mtime_ns
    return "interrupted" if later else "finished"


def _lines(path: Path) -> Iterator[Any]:
    """Complete lines of a file that may be growing; stop at a line that is not JSON."""
    try:
        content = path.read_bytes()
    except OSError:
        return
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            return
