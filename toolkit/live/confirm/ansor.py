"""Confirm Ansor's winners with the older TVM that found them, in its own interpreter.

TVM 0.20 and later have no Ansor. A process with an older TVM (``ansor_worker.py``) rebuilds the
records of a log. The user's Python files register the workloads. Blocks, rules and verdict are
the same as in every other validation. There is no search: only the older TVM could search.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    """Return a function that opens measuring processes of an interpreter with ``auto_scheduler``.

    ``workloads`` are Python files that register the tasks' workloads. ``target`` replaces the
    target of each record. Raises ``LiveError`` when a file does not exist.
    """
    for path in (python, *workloads):
        if not path.is_file():
            raise LiveError("there is no such file", where=path)
    settings = {"workloads": [str(path.resolve()) for path in workloads]}
    # The path is not resolved: the interpreter of a virtual environment is a link.
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
    """Rebuild a task's best records, compare their outputs, and measure each once.

    Raises ``LiveError`` when fewer than two records run.
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
        why = rejected[0]["error"] if rejected else "the dataset has no successful record"
        raise LiveError(
            f"no record of task {task.task_id} runs with the TVM of --tvm-python: {why}",
            cure="check that --workloads registers its workload and --target fits this machine",
        )
    if len(timed) == 1:
        raise LiveError(
            f"only one record of task {task.task_id} runs: there is nothing to compare it with",
            cure="give a larger --top to rebuild more records",
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
    """Return a record as a log line that the older TVM reads."""
    filled = {
        "schedule": row["schedule"],
        "run_times_s": [row["latency_s"]],
        "state": "ok",
        "error_number": 0,
        "elapsed_s": 0.0,
        # Written as a whole number: the older TVM can read nothing else.
        "timestamp": 0.0,
    }
    return Program(row["candidate_id"], ansor_line(filled, task).decode(), [], 0)
