"""Tune tasks on the device, into a MetaSchedule database.

Strategies and task schedulers are those of ``toolkit.search``; a replay uses the same ones on a
record. This module only puts them together: ``run_network`` is the loop, and ``DeviceOracle``
measures.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.measure.apart import ApartEngine
from toolkit.live.measure.device import Device
from toolkit.live.measure.fingerprint import emulator_warnings, machine_fingerprint
from toolkit.live.measure.machine import cpu_model, describe_machine
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.database import RECORDS_FILE, DatabaseWriter
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.oracle import DeviceOracle, Engine
from toolkit.live.space.programs import operations
from toolkit.live.space.recorded import Recorded, RecordedFirst
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.avoid import AvoidingOracle
from toolkit.live.tune.board import Board
from toolkit.live.tune.closing import close_search
from toolkit.live.tune.relatives import Relatives, Teaching
from toolkit.live.tune.resume import RememberingOracle, keep_settings, recorded_trials
from toolkit.live.tune.settings import TuneSettings, search_seconds, settled
from toolkit.live.tune.tasks import TuneTask
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.records import Task, TrialState
from toolkit.results import Result
from toolkit.search import STRATEGIES
from toolkit.search.base import Strategy
from toolkit.search.network import NetworkTask, run_network
from toolkit.search.runner import Budget, WallClock
from toolkit.search.schedulers import SCHEDULERS
from toolkit.training.trained.models import TrainedModels

SETTINGS_FILE = "tune.json"
RESULT_FILE = "tuned.json"


@dataclass(frozen=True)
class _Searcher:
    """One task during the search."""

    task: TuneTask
    space: MetaScheduleSpace
    network_task: NetworkTask
    oracle: AvoidingOracle
    recorded: RecordedFirst


def make_strategy(
    space: MetaScheduleSpace,
    guides: TrainedModels,
    name: str,
    options: Mapping[str, Any] | None,
    rng: np.random.Generator,
    relatives: Relatives | None = None,
    task: Task | None = None,
) -> Strategy:
    """Build a strategy on a live space, with members of the models that never saw its task.

    With ``relatives`` the throughput model learns from the other tasks of the search. ``task`` is
    the task that no member may have seen, if the models know the space's task by another id.
    """
    task = task or space.task
    any_space: Any = space
    related = None if relatives is None else partial(relatives.scorer, space=any_space)
    made: Strategy = STRATEGIES.get(name)(
        space,
        dict(options or {}),
        rng,
        scorer=guides.scorer(task, related),
        direction_scorer=guides.direction_scorer(task),
    )
    return made


@dataclass(frozen=True, repr=False)
class TuneResult(Result):
    """The content of ``tuned.json``.

    ``tasks`` has a row for each task: best latency in seconds, trials, failures by state, and how
    many recorded programs were measured first. ``searched_s`` is the search alone; ``seconds`` is
    the whole run. A process that runs the programs needs ``threads`` threads in TVM's pool
    (``TVM_NUM_THREADS``).
    """

    out: str
    tasks: list[dict[str, Any]]
    weighted_latency_s: float | None
    trials: int
    records: int
    trials_per_minute: float
    searched_s: float
    finished_at: float
    seconds: float
    threads: int
    warnings: list[str]


@one_writer
def tune(
    tasks: Sequence[TuneTask],
    out: Path,
    *,
    target: str,
    protocol: Protocol,
    settings: TuneSettings,
    guides: TrainedModels,
    engine: Callable[[], Any] | None = None,
    machine: str | None = None,
    clock: WallClock | None = None,
    recorded: Recorded | None = None,
    progress: Progress = SILENT,
) -> TuneResult:
    """Tune tasks into the MetaSchedule database in ``out``; continue an interrupted run.

    Parameters
    ----------
    recorded
        A dataset whose best programs of the same computations are measured first.
    engine
        Opens what builds and measures (an ``Engine`` that is a context manager). Default: a
        ``Device`` on this machine.
    clock
        Counts the seconds of the run, from its own construction.

    Raises
    ------
    LiveError
        When there is no budget, or ``out`` holds a run with other settings.
    """
    if settings.trials is None and settings.seconds is None:
        raise LiveError("the search has no budget", cure="give --trials, --seconds, or both")
    _same_settings(out, target, protocol, settings)
    clock = clock or WallClock()
    open_engine = engine or (lambda: Device(target, protocol))
    with open_engine() as device, DatabaseWriter(out, target) as writer:
        remote = device.remote if isinstance(device, ApartEngine) else None
        fingerprint = machine_fingerprint(target) if remote is None else remote.fingerprint(target)
        # A dataset of these records uses this name for the machine, and in the ids of its tasks.
        name = machine or cpu_model() if remote is None else remote.name(machine, fingerprint)
        total = None if settings.trials is None else float(settings.trials)
        label = f"tune {tasks[0].name}" if len(tasks) == 1 else f"tune {len(tasks)} tasks"
        with progress.step(label, total) as step:
            board = Board(step, clock, tasks)
            searchers = _searchers(
                tasks, writer, device, board, clock, target, settings, guides, name, recorded
            )
            writer.describe(
                {
                    "machine": name,
                    # For a device behind a tracker, only the fingerprint describes the hardware.
                    "hardware": describe_machine() if remote is None else None,
                    "machine_fingerprint": fingerprint,
                    "target": target,
                    "protocol": protocol.to_dict(),
                    "tasks": [
                        {
                            "workload_index": writer.workload_index(task.module),
                            "name": task.name,
                            "space_size": None,
                            "weight": task.weight,
                        }
                        for task in tasks
                    ],
                }
            )
            network = run_network(
                [searcher.network_task for searcher in searchers],
                SCHEDULERS.get(settings.scheduler)(
                    settings.scheduler_options, np.random.default_rng(settings.seed)
                ),
                Budget(settings.trials, search_seconds(settings, len(tasks))),
                round_size=settings.round_size,
                first_round=settings.first_round,
                clock=clock,
                meanwhile=device.meanwhile,
                stop=settled if settings.stop_when_settled else None,
            )
        searched_s = clock.now()
        unchecked, warnings = close_search(
            [(searcher.task, searcher.space) for searcher in searchers],
            writer,
            device,
            target=target,
            protocol=protocol,
            settings=settings,
            clock=clock,
            progress=progress,
        )
        rows = _rows(searchers, writer, unchecked)
    best = [row["best_latency_s"] for row in rows]
    spent = network.evaluations[-1] if network.evaluations else 0
    result = TuneResult(
        out=str(out),
        tasks=rows,
        weighted_latency_s=None
        if None in best
        else sum(row["weight"] * row["best_latency_s"] for row in rows),
        trials=spent,
        records=len(writer.records),
        trials_per_minute=round(60.0 * spent / max(searched_s, 1e-9), 2),
        searched_s=round(searched_s, 3),
        finished_at=time.time(),
        seconds=round(clock.now(), 3),
        threads=protocol.threads,
        warnings=[*warnings, *emulator_warnings(fingerprint)],
    )
    write_atomically(out / RESULT_FILE, orjson.dumps(result.to_json(), option=orjson.OPT_INDENT_2))
    return result


def _same_settings(out: Path, target: str, protocol: Protocol, settings: TuneSettings) -> None:
    """Refuse to mix two protocols or searches in one folder; the budget may change.

    A folder without records may get any settings: a mistyped strategy is no search.
    """
    records = out / RECORDS_FILE
    if not (records.is_file() and records.stat().st_size):
        (out / SETTINGS_FILE).unlink(missing_ok=True)
    free = ("trials", "seconds", "finalists", "check", "stop_when_settled")
    chosen = {key: value for key, value in asdict(settings).items() if key not in free}
    for newer in ("scheduler_options", "tolerance"):
        if not chosen[newer]:
            del chosen[newer]  # settings of older versions do not have it
    wanted = {"target": target, "protocol": protocol.to_dict(), **chosen}
    keep_settings(out / SETTINGS_FILE, wanted, "search")


def _searchers(
    tasks: Sequence[TuneTask],
    writer: DatabaseWriter,
    device: Engine,
    board: Board,
    clock: WallClock,
    target: str,
    settings: TuneSettings,
    guides: TrainedModels,
    machine: str,
    recorded: Recorded | None,
) -> list[_Searcher]:
    seeds = np.random.SeedSequence(settings.seed).spawn(len(tasks))
    relatives = Relatives() if len(tasks) > 1 and guides.throughput is not None else None
    found = []
    for number, task in enumerate(tasks):
        design = DesignSpace(task.module, target, seed=settings.seed + number + 1)
        space = MetaScheduleSpace(design, machine=machine)
        known = recorded_trials(space, writer, as_searched=True)
        strategy = make_strategy(
            space,
            guides,
            settings.strategy,
            settings.options,
            np.random.default_rng(seeds[number]),
            relatives,
        )
        follow = partial(board.take, task.name)
        measured = DeviceOracle(space, device, writer, clock=clock.now, on_trial=follow)
        remembering = RememberingOracle(measured, known, clock, follow)
        programs = [] if recorded is None else recorded.programs(space)
        first = RecordedFirst(strategy, remembering, programs)
        avoiding = AvoidingOracle(first, space)
        asked = first if relatives is None else Teaching(first, relatives, number)
        # Similar tasks of a network have the same operators.
        operators = re.sub(r"\d+", "", task.name.rpartition(":")[2])
        kind = operators if task.network else task.name
        searched = NetworkTask(asked, avoiding, task.weight, kind, operations(task.module))
        found.append(_Searcher(task, space, searched, avoiding, first))
    return found


def _rows(
    searchers: Sequence[_Searcher], writer: DatabaseWriter, unchecked: Mapping[str, str]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for searcher in searchers:
        trials = [trial for trial, _, _ in recorded_trials(searcher.space, writer)]
        latencies = [t.latency_s for t in trials if t.latency_s is not None]
        failed = Counter(t.state.value for t in trials if t.state is not TrialState.OK)
        rows.append(
            {
                "name": searcher.task.name,
                "task_id": searcher.space.task.task_id,
                "weight": searcher.task.weight,
                "trials": len(trials),
                "failed": dict(failed),
                "avoided": searcher.oracle.avoided,
                "recorded": searcher.recorded.measured,
                "best_latency_s": min(latencies, default=None),
                "unchecked": unchecked.get(searcher.space.task.task_id),
            }
        )
    return rows
