"""Rules that keep a race fair: models never saw the task, arms of an ablation, order of legs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from toolkit.errors import LeakError, LiveError, did_you_mean
from toolkit.live.race.baselines import BASELINES
from toolkit.live.race.leg import STOCK
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.search import STRATEGIES
from toolkit.training.table.table import workload_key
from toolkit.training.trained.models import TrainedModels

# To see what each part contributes: the engine alone, one part at a time, and the models alone.
ABLATION = ("random", "evolutionary", "etc-sketch", "mutation-guided", "model-ranked")


def refuse_leak(
    guides: TrainedModels, module: tvm.IRModule, target: str, machine: str | None
) -> list[dict[str, Any]]:
    """Check that the models that guide a search never saw its workload, on any machine.

    Returns the proof, one entry for each model: its kind as ``model``, the ``identity`` of the
    raced workload (``workload_key``), and the identities of the tasks it was ``trained_on``.

    Raises
    ------
    LeakError
        When all members of a model were trained on the workload.
    """
    if guides.throughput is None and guides.mutation is None:
        return []
    task = MetaScheduleSpace(DesignSpace(module, target), machine=machine).task
    identity = workload_key(task)
    proofs: list[dict[str, Any]] = []
    for kind, model, scorer in (
        ("throughput", guides.throughput, guides.scorer(task)),
        ("mutation", guides.mutation, guides.direction_scorer(task)),
    ):
        if scorer is None:
            continue
        known = {each: workload_key(model.known_task(each)) for each in scorer.training_task_ids}
        twins = [each for each, own in known.items() if identity == own or each == task.task_id]
        if twins:
            raise LeakError(
                f"the {kind} model was trained on the raced workload (task {min(twins)})",
                cure="train it on a dataset without this workload, or race another workload",
            )
        trained_on = sorted(set(known.values()))
        proofs.append({"model": kind, "identity": identity, "trained_on": trained_on})
    return proofs


def refuse_missing(
    guides: TrainedModels, strategies: Sequence[str], baselines: Sequence[str] = ()
) -> None:
    """Raise ``LiveError`` if an arm of the race does not exist, or a model it needs is missing."""
    others = [known for known in BASELINES if known != STOCK]
    for name in baselines:
        if name not in others:
            raise LiveError(f"no baseline is called {name!r}", cure=did_you_mean(name, others))
    needed = [(name, "throughput") for name in baselines if BASELINES[name].warm]
    flags = {"needs_scorer": "throughput", "needs_direction_scorer": "mutation"}
    for name in strategies:
        strategy: Any = STRATEGIES.get(name)
        needed += [(name, kind) for flag, kind in flags.items() if getattr(strategy, flag, False)]
    for name, kind in needed:
        if getattr(guides, kind) is None:
            raise LiveError(
                f"the arm {name!r} needs a {kind} model",
                cure=f"run 'toolkit train {kind}' on other tasks first, or leave out this arm",
            )


def leg_order(arms: Sequence[str], task: int, seed: int) -> list[str]:
    """Return the order of a task's arms for a seed: rotated, so that no arm is always first."""
    shift = (task + seed) % len(arms)
    return [*arms[shift:], *arms[:shift]]
