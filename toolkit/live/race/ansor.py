"""Race Ansor's own search against the two changes of Han et al. 2025, inside Ansor.

TVM 0.20 and later have no Ansor, so an older TVM runs the legs in its own interpreter
(``ansor_leg.py``). The arm ``stock`` is Ansor's unchanged ``SketchPolicy``. The other arms use its
samples, cost model, builder and runner. They add explore-then-commit over sketches, mutations by
predicted rules, or both. The final programs of all arms are compared in blocks, as in every race.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import LiveError, did_you_mean
from toolkit.live.confirm.ansor import ansor_devices
from toolkit.live.measure.machine import noise_warnings
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.race.leg import LEG_FILE
from toolkit.live.race.race import (
    RacedTask,
    RaceResult,
    RaceSettings,
    keep_race_settings,
    run_leg_process,
    run_race,
)
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress

SCRIPT = Path(__file__).with_name("ansor_leg.py")
WORKLOADS = Path(__file__).with_name("te_workloads.py")

ANSOR_ARMS = ("evolutionary", "etc-sketch", "mutation-guided", "etc-mutation")
"""The Python loop alone, explore-then-commit over sketches, predicted mutations, both."""

UNCOMMITTED = 256
"""Trials before a sketch is chosen: four rounds of 64 trials."""

PREDICTED = ("mutation-guided", "etc-mutation")
"""Arms that need the classifier of mutation rules."""

LEARN = ("C1D:1", "C2D:2", "GMM:1")
"""Default workloads whose random programs train the classifier."""


@one_writer
def race_ansor(
    workloads: Sequence[str],
    out: Path,
    *,
    python: Path,
    workload_files: Sequence[Path] = (),
    learn: Sequence[str] = LEARN,
    target: str,
    protocol: Protocol,
    settings: RaceSettings,
    progress: Progress = SILENT,
) -> RaceResult:
    """Run all unfinished legs, confirm the final programs, and write the report.

    ``workloads`` and ``learn`` are ``NAME:N`` or ``NAME(ARGUMENTS)``: operators of TVM, or
    workloads that ``workload_files`` register. ``python`` is an interpreter whose TVM has Ansor.
    The classifier is trained before the first leg, never on a raced workload. ``models`` in the
    result says how long that took.

    Raises
    ------
    LiveError
        When an arm or a workload does not exist, ``out`` holds a race with other settings, or a
        leg failed.
    """
    for name in settings.strategies:
        if name not in ANSOR_ARMS:
            raise LiveError(
                f"a race inside Ansor has no arm {name!r}", cure=did_you_mean(name, ANSOR_ARMS)
            )
    files = [WORKLOADS, *workload_files]
    open_device = ansor_devices(python, files, None)
    own_target, interpreter = _with_triple(target), str(python.absolute())
    alike = {
        "target": own_target,
        "protocol": protocol.to_dict(),
        "trials": settings.trials,
        "stock_build_timeout_s": settings.stock_build_timeout_s,
        "workloads": [str(path.resolve()) for path in files],
        "learn": list(learn),
    }
    keep_race_settings(out, {**alike, "python": interpreter})
    warnings = noise_warnings(protocol.threads)
    if settings.trials <= UNCOMMITTED and any(arm.startswith("etc") for arm in settings.strategies):
        warnings.append(
            f"a sketch is chosen after {UNCOMMITTED} trials: with --trials {settings.trials} "
            "etc-sketch changes nothing"
        )
    predicts = not set(PREDICTED).isdisjoint(settings.strategies)
    raced = list(dict.fromkeys(workloads))
    told = {**alike, "raced": raced, "learn": list(learn) if predicts else []}
    folder = (out / "learn").resolve()
    classifier = folder / "classifier.json"

    def leg(spec: Mapping[str, Any]) -> None:
        knows = str(classifier) if spec["arm"] in PREDICTED else None
        run_leg_process({**spec, "classifier": knows}, str(SCRIPT), interpreter)

    learned: list[str] = []
    if predicts:
        with progress.step("learn", 1.0) as step:
            step.advance(0.0, note="measuring mutants for the classifier")
            own = {"affinity": list(protocol.cores), "arm": "learn", "seed": 0}
            leg({**told, **own, "folder": str(folder), "name": "learn"})
            found = orjson.loads((folder / LEG_FILE).read_bytes())
            learned = [
                f"{classifier}: {found['programs']} programs of {', '.join(learn)} in "
                f"{found['seconds']:.0f} s, by best rule {found['best_rule']}"
            ]
            step.advance()
    return run_race(
        [RacedTask(one, {**told, "workload": one}, _program_of) for one in raced],
        out,
        target=own_target,
        protocol=protocol,
        settings=settings,
        models=learned,
        unseen=[],
        warnings=warnings,
        leg=leg,
        open_device=open_device,
        progress=progress,
    )


def _with_triple(target: str) -> str:
    """Return the target with this machine's triple; a TVM may be built for another default."""
    if sys.platform != "linux" or not target.startswith("{"):
        return target
    found = orjson.loads(target)
    if found.get("kind") == "llvm":
        found.setdefault("mtriple", f"{platform.machine()}-unknown-linux-gnu")
    return orjson.dumps(found).decode()


def _program_of(leg: Mapping[str, Any], trial: int) -> Program:
    """Return a trial's program as a line of the leg's log, which the older TVM reads."""
    lines = (Path(leg["folder"]) / "records.json").read_text(encoding="utf-8").splitlines()
    return Program(f"{leg['arm']}, trial {trial}", lines[trial - 1], [], 0)
