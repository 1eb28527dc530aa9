"""Races stock MetaSchedule against strategies of the toolkit: same task, target, trials, readings.

Every leg (one arm on one task with one seed) runs in a process of its own, arms in alternating
order. A finished leg is kept; one that was interrupted starts again, so that its clock is whole.
Afterwards the programs that the arms ended with meet in blocks (``toolkit.live.confirm.blocks``):
the latencies that the search itself read decide nothing about which final program is better.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from toolkit import children
from toolkit.errors import LiveError
from toolkit.live.measure.machine import describe_machine, noise_warnings
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import slowed_warnings
from toolkit.live.race.confirm import CONFIRMED_FILE, confirm_finals
from toolkit.live.race.curves import final_latency_s, leg_curve
from toolkit.live.race.leg import LEG_FILE, STOCK
from toolkit.live.race.report import report_race, write_report
from toolkit.live.race.rules import leg_order, refuse_leak
from toolkit.live.space.database import workload_line
from toolkit.live.tune.guides import Guides, load_guides
from toolkit.live.tune.resume import keep_settings
from toolkit.live.tune.tasks import TuneTask
from toolkit.live.tvm.stock import stock_trials
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.workspace import folder_name

SETTINGS_FILE = "race_settings.json"


@dataclass(frozen=True)
class RaceSettings:
    """What is raced and how.

    Attributes
    ----------
    strategies
        Our arms; each is a strategy of ``toolkit.search``.
    trials
        Budget of every leg, stock's too.
    seeds
        Legs of each arm on each task; seed numbers 0, 1, ...
    blocks
        Readings of each final program, each from a fresh build and process; 0: not confirmed.
    engine
        Options of the engine that our arms measure with.
    stock_build_timeout_s
        Time-out of TVM's own builder, where its 30 s are too short for this machine.
    """

    strategies: tuple[str, ...]
    trials: int = 256
    seeds: int = 1
    blocks: int = 9
    engine: Mapping[str, Any] = field(default_factory=dict)
    stock_build_timeout_s: float | None = None


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
) -> dict[str, Any]:
    """Run all legs that are not finished, confirm the final programs, report.

    Returns what ``race.json`` holds; the curves of all legs are in ``curves.parquet`` and
    ``curves.json`` beside it.

    Raises
    ------
    LeakError
        When a model was trained on a raced workload.
    LiveError
        When ``out`` holds a race with other settings, or a leg failed.
    """
    _same_settings(out, target, protocol, settings, models)
    guides = load_guides(list(models))
    needed_models(guides, settings.strategies)
    for task in tasks:
        refuse_leak(guides, task.module, target, machine)
    warnings = noise_warnings(protocol.threads) + guides.warnings(target)
    arms = (STOCK, *settings.strategies)
    legs: list[dict[str, Any]] = []
    with progress.step("race", float(len(tasks) * settings.seeds * len(arms))) as step:
        for seed in range(settings.seeds):
            for number, task in enumerate(tasks):
                for arm in leg_order(arms, number, seed):
                    step.advance(0.0, note=f"{task.name}, seed {seed}: {arm}")
                    folder = _leg_folder(out, task, seed, arm)
                    spec = _spec(task, folder, target, protocol, settings, models, machine)
                    run_leg_process({**spec, "arm": arm, "strategy": arm, "seed": seed})
                    step.advance()
    for task in tasks:
        for seed in range(settings.seeds):
            for arm in arms:
                folder = _leg_folder(out, task, seed, arm)
                legs.append(leg_curve(folder, task.name, seed, arm))
                if arm == STOCK and final_latency_s(legs[-1]) is None:
                    warnings.append(_all_failed(task.name, seed, folder))
    confirmed: list[dict[str, Any]] = []
    if settings.blocks:
        with progress.step("confirm", float(len(tasks) * settings.seeds)) as step:
            for task in tasks:
                for seed in range(settings.seeds):
                    mine = {
                        leg["arm"]: leg
                        for leg in legs
                        if leg["task"] == task.name and leg["seed"] == seed
                    }
                    folder = _leg_folder(out, task, seed, STOCK).parent
                    confirmed.append(
                        confirm_finals(
                            task, seed, mine, folder, target, protocol, settings.blocks, step
                        )
                    )
                    warnings += slowed_warnings(
                        f"{task.name}, seed {seed}",
                        confirmed[-1].get("slowed_by"),
                        "run the same command again when it is quiet"
                        if confirmed[-1].get("undecided")
                        else f"remove {folder / CONFIRMED_FILE} and race again when it is quiet",
                    )
                    step.advance()
    facts = {
        "target": target,
        "machine": machine or describe_machine()["cpu"],
        "hardware": describe_machine(),
        "protocol": protocol.to_dict(),
        "settings": asdict(settings),
        "models": [str(model) for model in models],
        "warnings": warnings,
        "finished_at": time.time(),
    }
    result = {**facts, **report_race(legs, confirmed, settings.strategies)}
    write_report(out, result, legs)
    return result


def _all_failed(task: str, seed: int, folder: Path) -> str:
    error = next((row["error"] for row in stock_trials(folder) if row["error"]), "no trials")
    return (
        f"all trials of stock on {task}, seed {seed}, failed ({error.strip()[:80]}): on a slow or "
        "busy machine --stock-build-timeout helps; remove that leg's folder to run it again"
    )


def _leg_folder(out: Path, task: TuneTask, seed: int, arm: str) -> Path:
    return out / "legs" / folder_name(task.name) / f"seed-{seed}" / arm


def _spec(
    task: TuneTask,
    folder: Path,
    target: str,
    protocol: Protocol,
    settings: RaceSettings,
    models: Sequence[Path],
    machine: str | None,
) -> dict[str, Any]:
    return {
        "folder": str(folder.resolve()),
        "workload": workload_line(task.module),
        "name": task.name,
        "target": target,
        "protocol": protocol.to_dict(),
        "trials": settings.trials,
        "models": [str(model.resolve()) for model in models],
        "engine": dict(settings.engine),
        "stock_build_timeout_s": settings.stock_build_timeout_s,
        "machine": machine,
        "affinity": list(protocol.cores),
    }


def _same_settings(
    out: Path, target: str, protocol: Protocol, settings: RaceSettings, models: Sequence[Path]
) -> None:
    """Refuse to mix legs that may not be compared; tasks, seeds and arms may be added."""
    wanted = {
        "target": target,
        "protocol": protocol.to_dict(),
        "trials": settings.trials,
        "engine": dict(settings.engine),
        "stock_build_timeout_s": settings.stock_build_timeout_s,
        "models": sorted(str(model.resolve()) for model in models),
    }
    keep_settings(out / SETTINGS_FILE, wanted, "race")


def run_leg_process(spec: dict[str, Any]) -> None:
    """Run a leg in its own process unless it is finished; raise ``LiveError`` when it fails."""
    folder = Path(spec["folder"])
    if (folder / LEG_FILE).is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder.resolve() / "spec.json"
    path.write_bytes(orjson.dumps(spec, option=orjson.OPT_INDENT_2))
    with (folder / "leg.log").open("wb") as log:
        process = children.start(
            children.python("toolkit.live.race.leg", str(path)),
            environment={"TVM_NUM_THREADS": str(spec["protocol"]["threads"])},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # TVM's own builders put the current folder first where Python is 3.10.
            cwd=folder,
        )
        try:
            code = process.wait()
        finally:
            # Nobody would read what it goes on to measure when this process is interrupted.
            children.end(process)
    if code != 0:
        error = folder / "error.json"
        if error.is_file():
            raise LiveError(**orjson.loads(error.read_bytes()))
        last = (folder / "leg.log").read_text(errors="replace").strip().splitlines()[-1:]
        raise LiveError(
            f"{spec['arm']} on {spec['name']} ended with code {code}: {''.join(last)[:200]}",
            where=folder / "leg.log",
            cure="run the same command again: finished legs are kept",
        )


def needed_models(guides: Guides, strategies: Sequence[str]) -> None:
    """Raise ``LiveError`` when a strategy of the race needs a model that is not there."""
    from toolkit.search import STRATEGIES

    for name in strategies:
        strategy: Any = STRATEGIES.get(name)
        for flag, kind, model in (
            ("needs_scorer", "throughput", guides.throughput),
            ("needs_direction_scorer", "mutation", guides.mutation),
        ):
            if getattr(strategy, flag, False) and model is None:
                raise LiveError(
                    f"{name!r} needs a {kind} model",
                    cure=f"run 'toolkit train {kind}' on other tasks first, or leave it out",
                )
