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

import orjson
import polars as pl

from toolkit import children
from toolkit.datasets import Dataset
from toolkit.errors import LiveError
from toolkit.live.confirm.verdict import Screening, ValidateSettings
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import OpenDevice
from toolkit.logs.formats.ansor.format import ansor_line
from toolkit.progress import Step
from toolkit.records import Task, TrialState

WORKER = Path(__file__).with_name("ansor_worker.py")


def ansor_devices(python: Path, workloads: Sequence[Path], target: str | None) -> OpenDevice:
    """Measuring processes of an interpreter whose TVM has ``auto_scheduler``.

    ``workloads`` are Python files that register the tasks' workloads; ``target`` is compiled for
    instead of each record's own. Raises ``LiveError`` where a file is not there.
    """
    for path in (python, *workloads):
        if not path.is_file():
            raise LiveError("there is no such file", where=path)
    settings = {"workloads": [str(path.resolve()) for path in workloads]}
    # The path is kept as it was given: a virtual environment's interpreter is a link.
    command = children.python(str(WORKER), interpreter=str(python.absolute()))
    return lambda protocol: Device(target or "", protocol, command=command, settings=settings)


def screen_ansor(
    dataset: Dataset,
    task: Task,
    protocol: Protocol,
    settings: ValidateSettings,
    open_device: OpenDevice,
    step: Step,
) -> Screening:
    """Rebuild a task's recorded top, compare outputs, read each once.

    Raises ``LiveError`` when no record of it runs, or only one.
    """
    started = time.perf_counter()
    recorded = dataset.candidates([task.task_id]).filter(pl.col("state") == "ok")
    timed: list[tuple[str, float]] = []
    programs: dict[str, Program] = {}
    rejected: list[dict[str, str]] = []
    with open_device(protocol) as device:
        for row in recorded.sort("latency_s", "candidate_id").head(settings.top).to_dicts():
            name, program = row["candidate_id"], _program(row, task)
            reading = device.set_reference(program) if not timed else None
            if reading is None or reading.state is TrialState.OK:
                reading = device.check(program)
            if reading.state is TrialState.OK:
                reading = device.measure(program)
            if reading.state is TrialState.OK:
                timed.append((name, sum(reading.run_times_s) / len(reading.run_times_s)))
                programs[name] = program
            else:
                rejected.append({"candidate": name, "error": reading.error or reading.state.value})
    step.advance(time.perf_counter() - started, note="rebuilt the recorded best")
    if not timed:
        why = rejected[0]["error"] if rejected else "nothing was recorded"
        raise LiveError(
            f"no record of task {task.task_id} runs there: {why}",
            cure="does --workloads register its workload, and is --target one of this machine?",
        )
    if len(timed) == 1:
        raise LiveError(
            f"task {task.task_id} has one record that runs: there is nothing to compare",
            cure="a larger --top rebuilds more of them",
        )
    best = timed[0][0]
    fastest = sorted(timed[1:], key=lambda each: each[1])[: settings.challengers]
    return Screening(
        started=started,
        incumbent="best recorded",
        incumbent_id=best,
        program=programs[best],
        challengers={name: programs[name] for name, _ in fastest},
        screened=list(timed),
        rejected=rejected,
    )


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
