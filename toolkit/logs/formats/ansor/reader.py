"""Ansor logs v0.2 to v0.6 (TVM ``src/auto_scheduler/measure_record.cc``), read without TVM.

::

    {"i": [[workload key, target, hardware, host, layout option, task inputs], [[], steps]],
     "r": [[costs], error number, all cost, timestamp], "v": "v0.6"}

The task has 2 items in v0.2, 3 from v0.3 (hardware), 5 from v0.5 (host, layout option) and 6 in
v0.6 (names of task inputs).
"""

from __future__ import annotations

from typing import Any

import orjson

from toolkit.logs.formats.ansor.steps import StepReader
from toolkit.logs.rows.base import BadLine, Reading, outcome_of, refuse_deep, seconds, target_kind
from toolkit.logs.rows.identity import Interner, make_sketch, make_task
from toolkit.records import Sketch, Task, canonical_json

FORMAT = "ansor"

HARDWARE = (
    "num_cores",
    "vector_unit_bytes",
    "cache_line_bytes",
    "max_shared_memory_per_block",
    "max_local_memory_per_block",
    "max_threads_per_block",
    "max_vthread_extent",
    "warp_size",
)
"""Order of the hardware list (``HardwareParamsNode`` in ``auto_scheduler/search_task.h``)."""

_DEFAULTS: tuple[Any, ...] = ([], "", 0, [])
"""Hardware, host, layout option and task inputs for versions that do not write them."""


class AnsorReader:
    """Reads Ansor lines of all versions into readings."""

    def __init__(self, machine: str | None = None) -> None:
        self._machine = machine
        self._tasks = Interner()
        self._sketches = Interner()

    def interpret(self, entry: Any, index: int = 0, line: bytes = b"") -> Reading:
        """Interpret a decoded line (the module's docstring has the layout)."""
        inputs, result, version = entry.get("i"), entry.get("r"), entry.get("v")
        if not isinstance(inputs, list) or len(inputs) != 2:
            raise BadLine("'i' is not [task, state]")
        if not isinstance(result, list) or len(result) != 4:
            raise BadLine("'r' is not a list of 4 items")
        task_items, schedule = inputs
        if not isinstance(schedule, list) or len(schedule) != 2:
            raise BadLine("the state is not [stages, steps]")
        steps = StepReader()
        steps.read(schedule[1])
        state, run_times = outcome_of(result[0], result[1])
        return Reading(
            task=self.task(task_items, steps.extents),
            sketch=self.sketch(steps),
            decisions=tuple(steps.decisions),
            schedule=canonical_json(schedule).decode(),
            format_version=str(version),
            state=state,
            error_number=result[1],
            run_times_s=run_times,
            elapsed_s=seconds(result[2], "cost of the measurement"),
            timestamp=seconds(result[3], "timestamp"),
        )

    def sketch(self, steps: StepReader) -> Sketch:
        return self._sketches.made(
            canonical_json(steps.skeleton),
            lambda: make_sketch(FORMAT, steps.skeleton, steps.knobs.knobs),
        )

    def task(self, items: Any, extents: tuple[int, ...]) -> Task:
        """Return the task for a line's task items and the extents of its loops."""
        if not isinstance(items, list) or len(items) < 2:
            raise BadLine("the task is not [workload key, target, ...]")
        key, target = items[:2]
        if not isinstance(key, str) or not isinstance(target, str):
            raise BadLine("workload key and target are not strings")
        workload, bare = self._tasks.made(("key", key), lambda: _workload(key))

        def make() -> Task:
            # As v0.6 writes it, with TVM's defaults for items that older versions lack.
            full = [*items[:6], *_DEFAULTS[len(items) - 2 :]]
            numbers, layout, inputs = full[2], full[4], full[5]
            if not isinstance(numbers, list):
                raise BadLine("the hardware parameters are not a list")
            identity: dict[str, Any] = {"extents": extents} if bare else {}
            if inputs:
                identity["inputs"] = inputs
            if layout:
                identity["layout"] = layout
            return make_task(
                format=FORMAT,
                workload=workload[0],
                arguments=workload[1:],
                target=target,
                target_kind=target_kind(target),
                hardware=dict(zip(HARDWARE, numbers, strict=False)),
                machine=self._machine,
                extents=extents,
                blob=canonical_json(full).decode(),
                identity=identity or None,
            )

        return self._tasks.made((canonical_json(items), extents), make)


def _workload(key: str) -> tuple[list[Any], bool]:
    """Decode a workload key into [name, arguments...] and whether it has only a name."""
    try:
        decoded = orjson.loads(key)
        refuse_deep(key.encode())
    except orjson.JSONDecodeError:
        return [key], True
    if isinstance(decoded, list) and decoded and isinstance(decoded[0], str):
        return decoded, len(decoded) == 1
    raise BadLine("the workload key is not a list that begins with a name")
