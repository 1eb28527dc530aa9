"""What makes a race fair: nobody has seen the task, the arms of an ablation, the order of legs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from toolkit.errors import LeakError, LiveError
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import Task
from toolkit.search import STRATEGIES
from toolkit.training.table.table import workload_key
from toolkit.training.trained.models import TrainedModels

# What each part contributes: the engine alone, one part at a time, and the models alone.
ABLATION = ("random", "evolutionary", "etc-sketch", "mutation-guided", "model-ranked")


def refuse_leak(
    guides: TrainedModels, module: tvm.IRModule, target: str, machine: str | None
) -> None:
    """Make sure that the models which will guide a search never saw its workload, on any machine.

    Raises
    ------
    LeakError
        When every member of a model was trained on it.
    """
    if guides.throughput is None and guides.mutation is None:
        return
    space = MetaScheduleSpace(DesignSpace(module, target), machine=machine)
    for model, scorer in (
        (guides.throughput, guides.scorer(space.task)),
        (guides.mutation, guides.direction_scorer(space.task)),
    ):
        if model is not None and scorer is not None:
            refuse_seen(model, scorer, space.task)


def refuse_seen(model: Any, scorer: Any, task: Task) -> None:
    """Raise ``LeakError`` when a scorer's training tasks compute what the task computes."""
    wanted = workload_key(task)
    for known in sorted(scorer.training_task_ids):
        if known == task.task_id or workload_key(model.known_task(known)) == wanted:
            raise LeakError(
                f"the model was trained on the raced workload (task {known})",
                cure="train it on a dataset without this workload, or race another one",
            )


def refuse_missing(guides: TrainedModels, strategies: Sequence[str]) -> None:
    """Raise ``LiveError`` when a strategy of the race needs a model that is not there."""
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


def leg_order(arms: Sequence[str], task: int, seed: int) -> list[str]:
    """Order of the arms of one task and seed: rotated, so that none always comes first."""
    shift = (task + seed) % len(arms)
    return [*arms[shift:], *arms[:shift]]
