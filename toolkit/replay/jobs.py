"""The work of a simulation, task by task, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from toolkit.progress import Progress, Step
from toolkit.records import content_id
from toolkit.replay.methodology import SpaceFacts, run_matrices, score
from toolkit.replay.metrics import improvements, relative_at
from toolkit.replay.models import ModelSet, load_models
from toolkit.replay.parts import Parts, runs_table
from toolkit.replay.scenario import Scenario, StrategyChoice
from toolkit.replay.space import RecordedSpace
from toolkit.replay.table import RecordedTable
from toolkit.replay.task_run import replay_once

Models = ModelSet | Sequence[Path]


@dataclass(frozen=True)
class Job:
    """One task, and the grids at which its curves are read."""

    table: RecordedTable
    grids: dict[str, list[float]]

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.table.task.task_id


def run_jobs(
    jobs: Sequence[Job],
    scenario: Scenario,
    models: Models,
    workers: int,
    parts: Parts,
    progress: Progress,
) -> None:
    """Run what is not finished yet; every finished piece is kept at once.

    Pieces do not depend on each other or on their order, so that any number of workers gives the
    same ones.
    """
    todo = [
        (job, [c for c in scenario.strategies if not parts.has(job.task_id, c.label)])
        for job in jobs
    ]
    todo = [(job, choices) for job, choices in todo if choices]
    total = len(jobs) * len(scenario.strategies)
    missing = sum(len(choices) for _, choices in todo)
    with progress.step("replaying", total) as step:
        step.advance(total - missing, note="resumed" if missing < total else None)
        if workers <= 1 or len(todo) <= 1:
            loaded = models if isinstance(models, ModelSet) else load_models(models)
            for job, choices in todo:
                for label in _run_job(job, choices, scenario, loaded, parts):
                    step.advance(note=label)
            return
        # The largest first, so that no worker begins a long task when the others are done.
        todo.sort(key=lambda item: (-len(item[0].table), item[0].task_id))
        _run_parallel(todo, scenario, models, workers, parts, step)


def _run_parallel(
    todo: Sequence[tuple[Job, list[StrategyChoice]]],
    scenario: Scenario,
    models: Models,
    workers: int,
    parts: Parts,
    step: Step,
) -> None:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(workers, len(todo)),
        mp_context=context,
        initializer=_start_worker,
        initargs=(models, scenario, parts),
    )
    try:
        futures = [pool.submit(_work, job, choices) for job, choices in todo]
        for future in as_completed(futures):
            done = future.result()
            step.advance(len(done))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_job(
    job: Job, choices: Sequence[StrategyChoice], scenario: Scenario, models: ModelSet, parts: Parts
) -> Iterator[str]:
    """Replay strategies on one task, seed after seed, and keep each when it is done."""
    space = RecordedSpace(job.table)
    scorer, direction_scorer = models.scorer(space), models.direction_scorer(space)
    for choice in choices:
        runs = [
            replay_once(
                space, choice, scenario, seed, scorer=scorer, direction_scorer=direction_scorer
            )
            for seed in range(scenario.seeds)
        ]
        metrics: list[dict[str, Any]] = []
        facts = SpaceFacts.of(job.table)
        seed = int(content_id("score", job.task_id, choice.label), 16) % 2**32
        matrices = run_matrices(facts, [one.replayed for one in runs])
        of_all = score(facts, *matrices, np.random.RandomState(seed))
        for one in runs:
            curves = {
                f"curve_{unit}": relative_at(one.replayed, job.table.best_s, unit, grid)
                for unit, grid in job.grids.items()
            }
            steps = {"steps": improvements(one.replayed), "score": of_all}
            metrics.append({"seed": one.seed, **one.metrics, **steps, **curves})
        rows: pa.Table = runs_table(job.table, scenario.name, choice.label, runs)
        parts.write(job.task_id, choice.label, rows, metrics)
        yield choice.label


@dataclass
class _Worker:
    """What a worker process keeps between jobs."""

    models: ModelSet
    scenario: Scenario
    parts: Parts


_worker: list[_Worker] = []


def _start_worker(models: Models, scenario: Scenario, parts: Parts) -> None:
    # An interrupt from the keyboard reaches workers too; what they finished is on disk.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # Workers share the machine: a library that starts threads of its own would only slow them.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    loaded = models if isinstance(models, ModelSet) else load_models(models)
    _worker[:] = [_Worker(loaded, scenario, parts)]


def _work(job: Job, choices: list[StrategyChoice]) -> list[str]:
    worker = _worker[0]
    return list(_run_job(job, choices, worker.scenario, worker.models, worker.parts))
