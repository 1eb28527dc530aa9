"""Confirms Ansor's winners by the TVM that made them, in an interpreter of its own.

TVM 0.20 and later have no Ansor. A process of an older TVM (``ansor_worker.py``) rebuilds a log's
records, whose workloads a Python file of the user registers; the blocks, the rules and the verdict
are those of every other validation. Nothing is searched: that TVM's own tuner would have to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from toolkit import children
from toolkit.datasets import Dataset
from toolkit.errors import LiveError
from toolkit.live.confirm.blocks import confirm
from toolkit.live.confirm.verdict import Looked, ValidateSettings, verdict_of, write_verdicts
from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import noise_warnings
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import OpenDevice
from toolkit.locks import one_writer
from toolkit.logs.formats.ansor.format import ansor_line
from toolkit.progress import SILENT, Progress, Step
from toolkit.records import Task, TrialState

WORKER = Path(__file__).with_name("ansor_worker.py")


@one_writer
def validate_older(
    dataset: Dataset,
    tasks: Sequence[Task],
    out: Path,
    *,
    python: Path,
    workloads: Sequence[Path],
    target: str | None,
    protocol: Protocol,
    settings: ValidateSettings,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Validate Ansor tasks; write ``verdicts.json`` and return what it holds.

    Parameters
    ----------
    python
        An interpreter that has a TVM with ``auto_scheduler``.
    workloads
        Python files that register the tasks' workloads.
    target
        Compiled for instead of each record's own target.

    Raises
    ------
    LiveError
        When that interpreter or a workload file does not load, or no record of a task runs.
    """
    for path in (python, *workloads):
        if not path.is_file():
            raise LiveError("there is no such file", where=path)
    started = time.perf_counter()
    warnings = noise_warnings(protocol.threads)
    names = [str(path.resolve()) for path in workloads]

    def open_device(under: Protocol) -> Device:
        # The path is kept as it was given: a virtual environment's interpreter is a link.
        command = children.python(str(WORKER), interpreter=str(python.absolute()))
        return Device(target or "", under, command=command, settings={"workloads": names})

    verdicts = []
    for task in tasks:
        with progress.step(f"validate {task.workload}", settings.seconds) as step:
            verdicts.append(_validate(dataset, task, target, protocol, settings, open_device, step))
    return write_verdicts(
        out,
        verdicts,
        protocol=protocol,
        settings=settings,
        dataset=dataset.fingerprint(),
        warnings=warnings,
        started=started,
    )


def _validate(
    dataset: Dataset,
    task: Task,
    target: str | None,
    protocol: Protocol,
    settings: ValidateSettings,
    open_device: OpenDevice,
    step: Step,
) -> dict[str, Any]:
    """One task: rebuild the recorded top, compare outputs, read each once, confirm the fastest."""
    started = time.perf_counter()
    recorded = dataset.candidates([task.task_id]).filter(pl.col("state") == "ok")
    rows = recorded.sort("latency_s", "candidate_id").head(settings.top).to_dicts()
    timed: list[tuple[float, str, Program]] = []
    rejected: list[dict[str, str]] = []
    best: Program | None = None
    with open_device(protocol) as device:
        for row in rows:
            program = _program(row, task)
            reading = device.set_reference(program) if not timed else None
            if reading is None or reading.state is TrialState.OK:
                reading = device.check(program)
            if reading.state is TrialState.OK:
                reading = device.measure(program)
            if reading.state is not TrialState.OK:
                said = reading.error or reading.state.value
                rejected.append({"candidate": row["candidate_id"], "error": said})
                continue
            latency = sum(reading.run_times_s) / len(reading.run_times_s)
            timed.append((latency, row["candidate_id"], program))
            best = best or program
    step.advance(time.perf_counter() - started, note="rebuilt the recorded best")
    if best is None:
        why = rejected[0]["error"] if rejected else "nothing was recorded"
        raise LiveError(
            f"no record of task {task.task_id} runs there: {why}",
            cure="does --workloads register its workload, and is --target one of this machine?",
        )
    incumbent_id = next(identity for _, identity, program in timed if program is best)
    others = sorted((t for t in timed if t[2] is not best), key=lambda each: each[0])
    challengers = {identity: program for _, identity, program in others[: settings.challengers]}
    if not challengers:
        raise LiveError(
            f"task {task.task_id} has one record that runs: there is nothing to compare",
            cure="a larger --top rebuilds more of them",
        )
    result = confirm(
        best,
        challengers,
        target=target or task.target,
        protocol=protocol,
        rules=settings.rules,
        seconds=max(5.0, settings.seconds - (time.perf_counter() - started)),
        rng=np.random.default_rng(settings.seed),
        step=step,
        open_device=open_device,
    )
    looked = Looked(
        incumbent="best recorded",
        incumbent_id=incumbent_id,
        screened=len(timed),
        refined=0,
        rejected=rejected,
        recorded={identity for _, identity, _ in timed},
        read_s={identity: latency for latency, identity, _ in timed},
        started=started,
    )
    return verdict_of(task, target or task.target, result, looked)


def _program(row: dict[str, Any], task: Task) -> Program:
    """A record as the line of an Ansor log that the older TVM reads."""
    filled = {
        "schedule": row["schedule"],
        "run_times_s": [row["latency_s"]],
        "state": "ok",
        "error_number": 0,
        "elapsed_s": 0.0,
        "timestamp": 0.0,
    }
    line = orjson.loads(ansor_line(filled, task))
    # That TVM reads whole numbers there, as it writes them.
    line["r"][2], line["r"][3] = 0.0, 0
    return Program(row["candidate_id"], orjson.dumps(line).decode(), [], 0)
