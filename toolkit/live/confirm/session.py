"""Puts a validation together from what earlier commands left: dataset, models, this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolkit.datasets import open_dataset
from toolkit.errors import LiveError
from toolkit.live.confirm.choose import choose_tasks
from toolkit.live.confirm.older import validate_older
from toolkit.live.confirm.validate import validate
from toolkit.live.confirm.verdict import ValidateSettings
from toolkit.live.measure import machine
from toolkit.live.measure.protocol import Protocol
from toolkit.live.tune.guides import load_guides
from toolkit.progress import SILENT, Progress
from toolkit.records import Task


def target_here(task: Task) -> str:
    """The task's target with this machine's processor, its number of threads kept.

    Code for another processor may not run here at all; what is compared is compiled for this
    one. GPU targets are taken as they are.
    """
    if task.target_kind != "llvm":
        return machine.parse_target(task.target)
    return machine.default_target(machine.target_threads(task.target))


def validate_dataset(
    dataset_dir: Path,
    *,
    task_names: Sequence[str] = (),
    task_count: int = 2,
    top: int = 5,
    seconds: float = 60.0,
    target: str | None = None,
    strategy: str | None = None,
    models: Sequence[Path] | None = None,
    cores: Sequence[int] = (),
    seed: int = 0,
    out: Path,
    tvm_python: Path | None = None,
    workloads: Sequence[Path] = (),
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Validate tasks of a dataset on this machine; see ``toolkit.live.confirm.validate``.

    Without a strategy the refinement takes the best one that the models at hand allow. With
    ``tvm_python`` Ansor tasks are confirmed by that interpreter's TVM
    (``toolkit.live.confirm.older``).
    Raises ``LiveError`` where the tasks need different numbers of threads.
    """
    dataset = open_dataset(dataset_dir)
    if tvm_python is not None:
        return validate_older(
            dataset,
            choose_tasks(dataset, task_names, task_count, log_format="ansor"),
            out,
            python=tvm_python,
            workloads=workloads,
            target=target,
            protocol=Protocol(threads=len(cores) or machine.physical_cores(), cores=tuple(cores)),
            settings=ValidateSettings(top=top, seconds=seconds, strategy="none", seed=seed),
            progress=progress,
        )
    tasks = choose_tasks(dataset, task_names, task_count)
    given = None if target is None else machine.parse_target(target)
    targets = {task.task_id: given or target_here(task) for task in tasks}
    threads = {machine.target_threads(text) for text in targets.values()}
    if len(threads) > 1:
        raise LiveError(
            "the tasks were tuned for different numbers of threads: "
            + ", ".join(map(str, sorted(threads))),
            cure="validate them apart (--task), or give one --target",
        )
    guides = load_guides(models)
    settings = ValidateSettings(
        top=top,
        seconds=seconds,
        strategy=strategy or guides.best_strategy(),
        seed=seed,
    )
    return validate(
        dataset,
        tasks,
        out,
        target_of=targets,
        protocol=Protocol(threads=threads.pop(), cores=tuple(cores)),
        settings=settings,
        guides=guides,
        progress=progress,
    )
