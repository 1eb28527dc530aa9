"""Programs for functions without a record: those that a search would measure first.

An unscheduled function runs in one thread, without vectors, up to a hundred times slower than a
tuned one. Networks of programs that a model chose took two to five times as long as tuned ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Future
from itertools import chain

import numpy as np

from toolkit.live.measure.apart import BuildPool
from toolkit.live.measure.machine import physical_cores
from toolkit.live.measure.program import MeasureResult
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import Design, DesignSpace
from toolkit.live.space.programs import timed_program
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.settings import TuneSettings, for_network
from toolkit.live.tune.tasks import TuneTask
from toolkit.live.tune.tune import make_strategy
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.selection import RecordChoice
from toolkit.networks.tasks import network_tasks
from toolkit.progress import SILENT, Progress
from toolkit.records import TrialState
from toolkit.training.trained.models import TrainedModels

PICKS = 8
"""Programs to try for each function: TVM may refuse the first ones, or build them too slowly."""

BUILD_S = 10.0
"""Seconds that a build may take: some programs become huge when they are unrolled."""


def add_first_picks(
    graph: Graph,
    selection: RecordChoice,
    functions: Collection[str],
    target: str,
    guides: TrainedModels,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
) -> None:
    """Choose a program for each of these functions of a network, which have no record.

    Of several equal functions, ``selection`` names one. A function stays unscheduled if all its
    measured programs failed (the next one may fail, too), if TVM refuses all picks, or if no pick
    builds within ``BUILD_S``. Without models, programs are drawn at random.
    """
    functions = set(functions).difference(selection.failed)
    if not functions:
        return
    label = "choose programs for functions without a record"
    protocol = Protocol(build_timeout_s=BUILD_S)
    with (
        progress.step(label, float(len(functions))) as step,
        BuildPool(target, protocol, builders=physical_cores()) as pool,
    ):
        chosen = []
        for number, task in enumerate(network_tasks(graph, target)):
            name = task.name.removeprefix(f"{graph.name}:")
            if name in functions:
                step.advance(note=name)
                rng = np.random.default_rng([seed, number])
                picks = _picks(task, target, guides, rng, pool)
                # The first pick is built while picks for the next functions are chosen.
                chosen.append((name, task, chain([next(picks, None)], picks)))
        for name, task, tried in chosen:
            for design, building in filter(None, tried):
                if building.result().state is TrialState.OK:
                    selection.unmeasured[name] = task.module, design.schedule.trace
                    break


def _picks(
    task: TuneTask, target: str, guides: TrainedModels, rng: np.random.Generator, pool: BuildPool
) -> Iterator[tuple[Design, Future[MeasureResult]]]:
    """Yield the programs that a search would measure first; each build starts on demand."""
    space = MetaScheduleSpace(
        DesignSpace(task.module, target, seed=int(rng.integers(1, 2**31 - 1)))
    )
    settings = for_network(TuneSettings(strategy=guides.best_strategy()), stop=False)
    strategy = make_strategy(space, guides, settings.strategy, settings.options, rng)
    for candidate in strategy.ask(PICKS):
        design = space.realise(candidate)
        if design is not None:
            yield design, pool.try_build(timed_program(design.schedule, space.design.inputs))
