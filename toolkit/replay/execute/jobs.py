"""The work of a simulation, task by task, in this process or in several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from toolkit.progress import Progress
from toolkit.records import content_id
from toolkit.replay.execute.parts import Parts, runs_table
from toolkit.replay.execute.processes import in_processes
from toolkit.replay.execute.task_run import replay_once
from toolkit.replay.record.models import Models, ModelSet, opened
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario, StrategyChoice
from toolkit.replay.statistics.methodology import SpaceFacts, score_runs
from toolkit.replay.statistics.metrics import improvements, relative_at


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
            loaded = opened(models)
            for job, choices in todo:
                for label in _run_job(job, choices, scenario, loaded, parts):
                    step.advance(note=label)
            return
        # The largest first, so that no worker begins a long task when the others are done.
        todo.sort(key=lambda item: (-len(item[0].table), item[0].task_id))
        for done in in_processes(
            _work, todo, min(workers, len(todo)), _start_worker, (models, scenario, parts)
        ):
            step.advance(len(done))


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
        of_all = score_runs(facts, [one.replayed for one in runs], np.random.RandomState(seed))
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
    _worker[:] = [_Worker(opened(models), scenario, parts)]


def _work(job: Job, choices: list[StrategyChoice]) -> list[str]:
    worker = _worker[0]
    return list(_run_job(job, choices, worker.scenario, worker.models, worker.parts))
