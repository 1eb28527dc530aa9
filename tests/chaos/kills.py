"""Commands that are killed at random moments until they come to their end."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from running import Running, toolkit

KILLS = int(os.environ.get("CHAOS_KILLS", "50"))
"""So many of each command; a run that comes to its end begins anew elsewhere."""

SEED = int(os.environ.get("CHAOS_SEED", "2026"))


def killed_or_ended(
    run: Running, seconds: float, rng: random.Random, counts: Counter[str], ends: Container[int]
) -> bool:
    """Kill a run after so many seconds; count it, and say whether it had come to its end before.

    ``ends`` are the exit codes of an end. No process of the run may be left.
    """
    time.sleep(seconds)
    number = rng.choice((signal.SIGKILL, signal.SIGTERM))
    _, said = run.end(number)
    assert run.left() == [], f"left after {number.name}"
    ended = run.process.returncode in ends
    assert ended or run.process.returncode == -number, said
    counts["finished" if ended else "killed"] += 1
    counts[number.name] += not ended
    return ended


def kill_at_random(
    command: tuple[Any, ...],
    folder: Path,
    checked: Callable[[Path, bool], None],
    ends: Container[int] = (0,),
    longest: float = 1.1,
) -> Counter[str]:
    """Kill runs of a command until there were ``KILLS``; count what happened.

    ``checked`` looks at the output folder after every run, and is told whether the run came to
    its end. No process of a run may be left after any. A run lives for ``longest`` of the time
    that a whole one takes, or less; a command that goes on where it was killed needs less.
    """
    rng = random.Random(f"{SEED} {command}")
    begun = time.monotonic()
    code, _, err = toolkit(*command, "--out", folder / "timed", cwd=folder)
    assert code in ends, err
    whole = time.monotonic() - begun
    counts: Counter[str] = Counter()
    while counts["killed"] < KILLS:
        out = folder / f"out-{counts['finished']}"
        run = Running(*command, "--out", out, cwd=folder)
        checked(out, killed_or_ended(run, rng.uniform(0.0, longest * whole), rng, counts, ends))
    out = folder / f"out-{counts['finished']}"
    code, _, err = toolkit(*command, "--out", out, cwd=folder)
    assert code in ends, err
    checked(out, True)
    counts["finished"] += 1
    print(f"{command[0]}: {dict(counts)}, {whole:.1f} s a whole run, no process left")  # noqa: T201
    return counts


def same_files(one: Path, other: Path) -> None:
    """Both folders hold the same files, byte for byte, and nothing by half."""
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def half_files(folder: Path) -> list[str]:
    """Files that a writer makes on its way and takes away again: after an end there are none."""
    ways = (".tmp", ".part", ".new", ".lock")
    return [str(path) for path in folder.rglob("*") if path.suffix in ways or path.name in ways]


def whole_lines(path: Path) -> list[bytes]:
    """Lines that have their end: what a kill left by half does not count."""
    return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def kept_records(folder: Path, before: list[bytes]) -> list[bytes]:
    """Records of a database in ``folder``; those of before a kill are still its first ones.

    A record counts when its line of ``database_trials.jsonl`` is there too.
    """
    records = whole_lines(folder / "database_tuning_record.json")
    trials = whole_lines(folder / "database_trials.jsonl")
    kept = records[: min(len(records), len(trials))]
    assert kept[: len(before)] == before, "what was measured stays"
    return kept
