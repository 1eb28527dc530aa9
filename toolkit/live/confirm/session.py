"""Run a validation with what earlier commands wrote (dataset, models) and this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from toolkit.atomic import write_atomically
from toolkit.datasets import Dataset, open_dataset
from toolkit.errors import DatasetError, LiveError, did_you_mean
from toolkit.live.confirm.ansor import ansor_devices, screen_ansor
from toolkit.live.confirm.validate import Screener
from toolkit.live.confirm.verdict import TaskVerdict, ValidateSettings, confirm, verdict_of
from toolkit.live.measure import machine
from toolkit.live.measure.fingerprint import emulator_warnings
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.remote import Remote
from toolkit.live.measure.slowed import slowed_warnings
from toolkit.live.measure.turns import OpenDevice
from toolkit.locks import writing
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.results import Result
from toolkit.training.trained.models import TrainedModels, load_trained

AGAIN = "run 'toolkit validate' again when the machine is quiet"
CURES = {
    "metaschedule": "only MetaSchedule databases can be rebuilt ('toolkit collect' makes one); "
    "for Ansor logs give --tvm-python, an interpreter with the TVM that made them",
    "ansor": "--tvm-python rebuilds Ansor records only, and this dataset has none",
}


@dataclass(frozen=True, repr=False)
class Validation(Result):
    """The content of ``verdicts.json``: verdicts, their counts, and the conditions."""

    verdicts: list[TaskVerdict]
    better: int
    not_better: int
    undecided: int
    warnings: list[str]
    machine: dict[str, Any]
    protocol: dict[str, Any]
    settings: dict[str, Any]
    dataset: str
    seconds: float


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
    device: str | None = None,
    progress: Progress = SILENT,
) -> Validation:
    """Validate tasks of a dataset on this machine; write ``verdicts.json`` into ``out``.

    ``device`` is a device behind a tracker (``rpc HOST:PORT KEY``) instead of this machine.

    Without ``strategy`` the best strategy that the models allow refines the candidates. With
    ``tvm_python`` the TVM of that interpreter confirms Ansor tasks (``confirm.ansor``).

    Raises
    ------
    LiveError
        When the tasks need different numbers of threads, when an interpreter or a workload file
        does not load, or when nothing of a task can be measured.
    """
    remote = None if device is None else Remote.parse(device)
    if remote is not None and tvm_python is not None:
        raise LiveError("--tvm-python measures on this machine only", cure="leave out --device")
    if remote is not None:
        remote.count()  # raises a clear error when there is no device
    dataset = open_dataset(dataset_dir)
    open_device: OpenDevice | None = None
    log_format = "metaschedule" if tvm_python is None else "ansor"
    tasks = _tasks(dataset, task_names, task_count, log_format)
    if tvm_python is not None:
        guides, strategy, targets = TrainedModels(), "none", {}
        threads = {len(cores) or machine.physical_cores()}
        open_device = ansor_devices(tvm_python, workloads, target)
    else:
        given = None if target is None else machine.parse_target(target)
        targets = {task.task_id: given or _target_of(task, remote is None) for task in tasks}
        threads = {machine.target_threads(text) for text in targets.values()}
        guides = load_trained(models)
        strategy = strategy or guides.best_strategy()
    if len(threads) > 1:
        raise LiveError(
            "the tasks were tuned for different numbers of threads: "
            + ", ".join(map(str, sorted(threads))),
            cure="validate one task at a time (--task), or give one --target",
        )
    protocol = Protocol(threads=threads.pop(), cores=tuple(cores))
    settings = ValidateSettings(top=top, seconds=seconds, strategy=strategy, seed=seed)
    with writing(out):
        started = time.perf_counter()
        if remote is None:
            warnings = machine.noise_warnings(protocol.threads)
        else:
            warnings = emulator_warnings(remote.fingerprint(next(iter(targets.values()))))
        warnings += guides.warnings(*dict.fromkeys(targets.values()))
        verdicts = []
        for task in tasks:
            rng = np.random.default_rng(seed)
            here = targets.get(task.task_id) or target or task.target
            with progress.step(f"validate {task.workload}", seconds) as step:
                if open_device is not None:
                    before = screen_ansor(dataset, task, protocol, settings, open_device, step)
                else:
                    screener = Screener(
                        dataset, task, here, protocol, settings, guides, rng, remote
                    )
                    before = screener.run(out / "measured" / task.task_id, step)
                found = confirm(
                    before.program,
                    before.challengers,
                    target=here,
                    protocol=protocol,
                    rules=settings.rules,
                    seconds=max(5.0, seconds - (time.perf_counter() - before.started)),
                    rng=rng,
                    step=step,
                    open_device=open_device if remote is None else remote.arms(here),
                )
            said = verdict_of(task, here, before, found)
            verdicts.append(said)
            warnings += slowed_warnings(said.name, said.slowed_by, AGAIN)
            # Written after each task: an interrupt, or a task that cannot be measured, must not
            # lose the verdicts before it.
            counts = [said.verdict for said in verdicts]
            result = Validation(
                verdicts=verdicts,
                better=counts.count("better"),
                not_better=counts.count("not better"),
                undecided=counts.count("undecided"),
                warnings=warnings,
                machine=machine.describe_machine() if remote is None else {"device": device},
                protocol=protocol.to_dict(),
                settings=asdict(settings),
                dataset=dataset.fingerprint(),
                seconds=round(time.perf_counter() - started, 2),
            )
            text = orjson.dumps(result.to_json(), option=orjson.OPT_INDENT_2)
            write_atomically(out / "verdicts.json", text)
    return result


def _target_of(task: Task, here: bool) -> str:
    """Return the task's own target, or this CPU's with as many threads for a CPU task ``here``.

    Code for another processor may not run here, so programs are compiled for this one. A device
    elsewhere does not report its target.
    """
    if here and task.target_kind == "llvm":
        return machine.default_target(machine.target_threads(task.target))
    return machine.parse_target(task.target)


def _tasks(dataset: Dataset, wanted: Sequence[str], count: int, log_format: str) -> list[Task]:
    """Return the tasks with these names (ids or their beginnings), else those with most records.

    Raises ``DatasetError`` when a name matches no task, and when no task can be rebuilt.
    """
    tasks = dataset.tasks()
    if wanted:
        chosen: dict[str, Task] = {}
        for name in wanted:
            found = {key: task for key, task in tasks.items() if key.startswith(name)}
            if not found:
                raise DatasetError(
                    f"no task has an id that begins with {name!r}",
                    where=dataset.path,
                    cure=did_you_mean(name, tasks) + " ('toolkit describe' lists them)",
                )
            chosen |= found
    else:
        counts = dataset.records(["task_id", "state"]).filter(pl.col("state") == "ok")
        order = counts.group_by("task_id").len().sort("len", "task_id", descending=True).collect()
        chosen = {key: tasks[key] for key in order["task_id"]}
    usable = [task for task in chosen.values() if task.format == log_format and task.blob]
    if not usable:
        raise DatasetError(
            "no task can be rebuilt here",
            where=dataset.path,
            cure=CURES[log_format],
        )
    return usable if wanted else usable[:count]
