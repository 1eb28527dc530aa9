"""Race stock MetaSchedule against the toolkit's strategies: same task, target, trials, readings.

Every leg (one arm on one task with one seed) runs in its own process. The order of the arms
rotates. A finished leg is kept; an interrupted leg starts again, so that its clock is complete.
Afterwards the final programs of the arms are compared in blocks (``toolkit.live.confirm.verdict``):
the search's own readings do not decide which final program is better.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import orjson

from toolkit import children
from toolkit.errors import LiveError
from toolkit.live.measure.machine import describe_machine, noise_warnings
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import OpenDevice
from toolkit.live.race.confirm import (
    ProgramOf,
    confirm_finals,
    confirmation_warnings,
    metaschedule_programs,
)
from toolkit.live.race.curves import final_latency_s, leg_curve
from toolkit.live.race.leg import LEG_FILE, STOCK
from toolkit.live.race.report import report_race, write_report
from toolkit.live.race.rules import leg_order, refuse_leak, refuse_missing
from toolkit.live.space.database import workload_line
from toolkit.live.tune.resume import keep_settings
from toolkit.live.tune.tasks import TuneTask
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.results import Result
from toolkit.training.trained.models import load_trained
from toolkit.workspace import folder_name

SETTINGS_FILE = "race_settings.json"

STOCK_BUILD_TIMEOUT_S = 30.0
"""Time limit of TVM's builder, unless another one is given."""


@dataclass(frozen=True)
class RaceSettings:
    """Settings of a race.

    The toolkit's arms are ``strategies`` of ``toolkit.search``. ``baselines`` are TVM's tuner with
    one change (``BASELINES``); unchanged, it always runs. Each arm has ``seeds`` legs of ``trials``
    trials on each task, with the seeds ``first_seed``, ``first_seed + 1``, ... ``blocks`` fresh
    readings confirm each final program (0: none). ``engine`` has options for ``open_engine``, for
    the toolkit's arms. ``stock_build_timeout_s`` is for TVM's own builder, if its 30 s are too
    short on this machine.
    """

    strategies: tuple[str, ...]
    baselines: tuple[str, ...] = ()
    trials: int = 256
    seeds: int = 1
    first_seed: int = 0
    blocks: int = 9
    engine: Mapping[str, Any] = field(default_factory=dict)
    stock_build_timeout_s: float | None = None


@dataclass(frozen=True, repr=False)
class RaceResult(Result):
    """The content of ``race.json``.

    ``unseen`` proves, for each task and model, that the model was not trained on the task
    (``refuse_leak``). ``rows`` compare each leg with stock's, and ``summary`` has means by arm
    (``report_race``). ``confirmed`` has the final programs' latencies in blocks
    (``confirm_finals``).
    """

    target: str
    machine: str
    hardware: dict[str, Any]
    protocol: dict[str, Any]
    settings: dict[str, Any]
    models: list[str]
    unseen: list[dict[str, Any]]
    warnings: list[str]
    finished_at: float
    rows: list[dict[str, Any]]
    summary: dict[str, dict[str, Any]]
    confirmed: list[dict[str, Any]]


@one_writer
def race(
    tasks: Sequence[TuneTask],
    out: Path,
    *,
    target: str,
    protocol: Protocol,
    settings: RaceSettings,
    models: Sequence[Path],
    machine: str | None = None,
    progress: Progress = SILENT,
) -> RaceResult:
    """Run all unfinished legs, confirm the final programs, and write the report.

    The curves of all legs go into ``curves.parquet`` and ``curves.json`` beside ``race.json``.

    Raises
    ------
    LeakError
        When a model was trained on a raced workload.
    LiveError
        When ``out`` holds a race with other settings, or a leg failed.
    """
    folders = [str(model.resolve()) for model in models]
    alike = {
        "target": target,
        "protocol": protocol.to_dict(),
        "trials": settings.trials,
        "engine": dict(settings.engine),
        "stock_build_timeout_s": settings.stock_build_timeout_s,
    }
    keep_race_settings(out, {**alike, "models": sorted(folders)})
    guides = load_trained(list(models))
    refuse_missing(guides, settings.strategies, settings.baselines)
    unseen = [
        {"task": task.name, **proof}
        for task in tasks
        for proof in refuse_leak(guides, task.module, target, machine)
    ]
    raced = [
        RacedTask(
            task.name,
            {**alike, "workload": workload_line(task.module), "models": folders},
            metaschedule_programs(task),
        )
        for task in tasks
    ]
    return run_race(
        raced,
        out,
        target=target,
        protocol=protocol,
        settings=settings,
        models=[str(model) for model in models],
        machine=machine,
        unseen=unseen,
        warnings=noise_warnings(protocol.threads) + guides.warnings(target),
        progress=progress,
    )


def keep_race_settings(out: Path, wanted: Mapping[str, Any]) -> None:
    """Write the race's settings; raise ``LiveError`` if ``out`` has legs with other settings.

    Tasks, seeds and arms may be added. Before the first finished leg the settings may change, so
    that a mistake (no model yet, a mistyped option) can be corrected.
    """
    legs = (out.glob(f"{depth}/{LEG_FILE}") for depth in ("*", "legs/*/*/*"))
    if not any(map(any, legs)):
        (out / SETTINGS_FILE).unlink(missing_ok=True)
    keep_settings(out / SETTINGS_FILE, wanted, "race")


@dataclass(frozen=True)
class RacedTask:
    """A task of a race: the specification of its legs without arm and seed, and its programs."""

    name: str
    spec: Mapping[str, Any]
    program_of: ProgramOf


def run_race(
    tasks: Sequence[RacedTask],
    out: Path,
    *,
    target: str,
    protocol: Protocol,
    settings: RaceSettings,
    models: Sequence[str],
    unseen: list[dict[str, Any]],
    warnings: list[str],
    machine: str | None = None,
    leg: Callable[[dict[str, Any]], None] | None = None,
    open_device: OpenDevice | None = None,
    progress: Progress = SILENT,
) -> RaceResult:
    """Run the legs of a race with any kind of search, confirm the programs, write the report.

    ``leg`` runs a leg from its specification (default: ``run_leg_process``). ``open_device`` opens
    a measuring process for the final programs, if they are not for this process's TVM.
    """
    opponents = (*settings.baselines, *settings.strategies)
    arms = (STOCK, *opponents)
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)

    def folder_of(task: RacedTask, seed: int) -> Path:
        return out / "legs" / folder_name(task.name) / f"seed-{seed}"

    with progress.step("race", float(len(tasks) * settings.seeds * len(arms))) as step:
        for seed, (number, task) in product(seeds, enumerate(tasks)):
            for arm in leg_order(arms, number, seed):
                step.advance(0.0, note=f"{task.name}, seed {seed}: {arm}")
                spec = {
                    **task.spec,
                    "folder": str((folder_of(task, seed) / arm).resolve()),
                    "name": task.name,
                    "machine": machine,
                    "affinity": list(protocol.cores),
                    "arm": arm,
                    "strategy": arm,
                    "seed": seed,
                }
                (leg or run_leg_process)(spec)
                step.advance()
    legs: list[dict[str, Any]] = []
    confirmed: list[dict[str, Any]] = []
    # Programs that stock's builder had time to build must be built again.
    limit_s = settings.stock_build_timeout_s or STOCK_BUILD_TIMEOUT_S
    patient = replace(protocol, build_timeout_s=max(protocol.build_timeout_s, limit_s))
    with progress.step("confirm", float(len(tasks) * settings.seeds)) as step:
        for task, seed in product(tasks, seeds):
            folder = folder_of(task, seed)
            raced = [leg_curve(folder / arm, task.name, seed, arm) for arm in arms]
            legs += raced
            if final_latency_s(raced[0]) is None:
                errors = (row["error"] for row in raced[0]["trials"] if row["error"])
                warnings.append(
                    f"all trials of stock on {task.name}, seed {seed}, failed "
                    f"({next(errors, 'no trials').strip()[:80]}): on a slow or busy machine give a "
                    "longer --stock-build-timeout and another --out; to run this leg again "
                    "unchanged, remove its folder"
                )
            if settings.blocks:
                found = confirm_finals(
                    task.name,
                    seed,
                    {leg["arm"]: leg for leg in raced},
                    folder,
                    program_of=task.program_of,
                    target=target,
                    protocol=patient,
                    blocks=settings.blocks,
                    step=step,
                    open_device=open_device,
                )
                confirmed.append(found)
                warnings += confirmation_warnings(found, folder)
            step.advance()
    hardware = describe_machine()
    result = RaceResult(
        target=target,
        machine=machine or hardware["cpu"],
        hardware=hardware,
        protocol=protocol.to_dict(),
        settings=asdict(settings),
        models=list(models),
        unseen=unseen,
        warnings=warnings,
        finished_at=time.time(),
        **report_race(legs, confirmed, opponents),
    )
    write_report(out, result.to_json(), legs)
    return result


def _identity(spec: Mapping[str, Any]) -> str:
    """Return the identity of a leg's workload: its hash, or its name inside Ansor."""
    told = str(spec.get("workload"))
    return str(orjson.loads(told)[0]) if told.startswith("[") else told


def run_leg_process(
    spec: dict[str, Any],
    script: str = "toolkit.live.race.leg",
    interpreter: str = sys.executable,
) -> None:
    """Run an unfinished leg in its own process; raise ``LiveError`` when it fails.

    ``script`` is a module that runs the leg, or the path of a script for another ``interpreter``.
    """
    folder = Path(spec["folder"])
    if (folder / LEG_FILE).is_file():
        before = orjson.loads((folder / "spec.json").read_bytes())
        if _identity(before) != _identity(spec):
            raise LiveError(
                f"another workload was called {spec['name']} when this leg was run",
                where=folder,
                cure="give another --out, or give the workload another name",
            )
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "spec.json"
    path.write_bytes(orjson.dumps(spec, option=orjson.OPT_INDENT_2))
    log = folder / "leg.log"
    code = children.run_logged(
        children.python(script, str(path), interpreter=interpreter),
        log,
        environment={"TVM_NUM_THREADS": str(spec["protocol"]["threads"])},
        # With Python 3.10, TVM's own builders import from the current folder first.
        cwd=folder,
    )
    if code != 0:
        error = folder / "error.json"
        if error.is_file():
            raise LiveError(**orjson.loads(error.read_bytes()))
        raise LiveError(
            f"{spec['arm']} on {spec['name']} ended with code {code}: {children.last_line(log)}",
            where=log,
            cure="run the same command again: finished legs are kept",
        )
