"""Programs for functions without a record: what a search would measure first.

As TVM leaves a function it runs in one thread, without vectors, up to a hundred times slower than
tuned. Networks of programs that a model chose took two to five times as long as tuned ones.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from tvm.s_tir import meta_schedule as ms

from toolkit.live.measure.machine import tvm_target
from toolkit.live.space.design import Design, DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.settings import TuneSettings, for_network
from toolkit.live.tune.tasks import TuneTask
from toolkit.live.tune.tune import make_strategy
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.selection import RecordChoice
from toolkit.networks.tasks import network_tasks
from toolkit.progress import SILENT, Progress
from toolkit.training.trained.models import TrainedModels

PICKS = 8
"""So many are asked for: TVM may refuse the first ones."""


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

    Of equal functions one is named. One whose measured programs all failed stays as TVM has it: the
    next one may fail, too. So does one in which TVM refuses all picks. Without models programs are
    drawn at random.
    """
    functions = set(functions).difference(selection.failed)
    if not functions:
        return
    label = "choose programs for functions without a record"
    with progress.step(label, float(len(functions))) as step:
        for number, task in enumerate(network_tasks(graph, target)):
            name = task.name.removeprefix(f"{graph.name}:")
            if name not in functions:
                continue
            step.advance(note=name)
            design = _first_pick(task, target, guides, np.random.default_rng([seed, number]))
            if design is not None:
                selection.unmeasured[name] = ms.database.TuningRecord(
                    design.schedule.trace,
                    ms.database.Workload(task.module),
                    [1.0],  # stands for nothing: it is the only one
                    tvm_target(target),
                    ms.arg_info.ArgInfo.from_prim_func(task.module["main"]),
                )


def _first_pick(
    task: TuneTask, target: str, guides: TrainedModels, rng: np.random.Generator
) -> Design | None:
    design = DesignSpace(task.module, target, seed=int(rng.integers(1, 2**31 - 1)))
    space = MetaScheduleSpace(design)
    settings = for_network(TuneSettings(strategy=guides.best_strategy()), stop=False)
    strategy = make_strategy(space, guides, settings.strategy, settings.options, rng)
    realised = (space.realise(candidate) for candidate in strategy.ask(PICKS))
    return next((one for one in realised if one is not None), None)
