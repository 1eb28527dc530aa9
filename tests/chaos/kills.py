"""Commands that are killed at random moments until they come to their end."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from running import Running, toolkit

KILLS = int(os.environ.get("CHAOS_KILLS", "50"))
"""So many of each command; a run that comes to its end begins anew elsewhere."""

SEED = int(os.environ.get("CHAOS_SEED", "2026"))


def kill_at_random(
    command: tuple[Any, ...], folder: Path, checked: Callable[[Path, bool], None]
) -> Counter[str]:
    """Kill runs of a command until there were ``KILLS``; count what happened.

    ``checked`` looks at the output folder after every run, and is told whether the run came to
    its end. No process of a run may be left after any.
    """
    rng = random.Random(f"{SEED} {command}")
    begun = time.monotonic()
    code, _, err = toolkit(*command, "--out", folder / "timed", cwd=folder)
    assert code == 0, err
    whole = time.monotonic() - begun
    counts: Counter[str] = Counter()
    while counts["killed"] < KILLS:
        out = folder / f"out-{counts['finished']}"
        run = Running(*command, "--out", out, cwd=folder)
        time.sleep(rng.uniform(0.0, 1.1 * whole))
        number = rng.choice((signal.SIGKILL, signal.SIGTERM))
        run.end(number)
        assert run.left() == [], f"left after {number.name}"
        ended = run.process.returncode == 0
        assert ended or run.process.returncode == -number
        counts["finished" if ended else "killed"] += 1
        counts[number.name] += not ended
        checked(out, ended)
    out = folder / f"out-{counts['finished']}"
    code, _, err = toolkit(*command, "--out", out, cwd=folder)
    assert code == 0, err
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
