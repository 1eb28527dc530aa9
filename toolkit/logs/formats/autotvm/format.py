"""AutoTVM logs, 0.1 and 0.2 (TVM ``python/tvm/autotvm/record.py``), read without TVM.

0.2 (2019 on)::

    {"input": [target, task name, args, kwargs],
     "config": {"index": n, "code_hash": null, "entity": [[name, kind, value], ...]},
     "result": [[costs], error number, all cost, timestamp], "version": 0.2, "tvm_version": "..."}

0.1 (2018)::

    {"i": [target, task name, args, kwargs, workload,
           {"i": n, "t": template, "c": code hash, "e": entities}],
     "r": [...], "v": 0.1}

Entities: ``sp`` a split (factors, outermost first; -1 follows from the axis), ``re`` a reorder
(permutation), ``an`` annotations (words), ``ot`` any other value.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.formats.autotvm.extents import axis_extents
from toolkit.logs.rows.base import (
    INT64_MAX,
    BadLine,
    Reading,
    outcome_of,
    seconds,
    target_kind,
    word_code,
)
from toolkit.logs.rows.format import LineFormat, Row, Selection, tvm_result
from toolkit.logs.rows.identity import (
    Interner,
    KnobList,
    labels_of,
    learn_labels,
    make_sketch,
    make_task,
)
from toolkit.records import KnobKind, Sketch, Task, canonical_json

FORMAT = "autotvm"
FAILURE_S = 1e9


class AutoTVM(LineFormat):
    """AutoTVM 0.1 and 0.2."""

    name = FORMAT
    extractor = "knobs"
    number_in_space = r'"index":(\d+)'
    writes = frozenset({FORMAT})

    def accepts(self, entry: Any) -> bool:
        """Whether the line has an input and a configuration (0.2), or a flat input (0.1)."""
        if not isinstance(entry, dict):
            return False
        if "input" in entry and "config" in entry:
            return True
        inputs = entry.get("i")
        nested = isinstance(inputs, list) and inputs and isinstance(inputs[0], list)
        return isinstance(inputs, list) and "r" in entry and not nested

    def reader(self, machine: str | None, beside: Any = None) -> AutoTVMReader:
        return AutoTVMReader(machine)

    def is_whole_space(
        self, sketch: Sketch, decisions: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> bool:
        """Whether the configurations' numbers have no gap, and all combinations are there."""
        if not np.array_equal(np.sort(numbers), np.arange(len(numbers))):
            return False
        sizes = [len(np.unique(decisions[:, knob.free], axis=0)) for knob in sketch.knobs]
        return math.prod(sizes) == len(numbers)

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        return {out: selection.lines(autotvm_line)}


def autotvm_line(row: Row, task: Task) -> bytes:
    """Make an AutoTVM 0.2 line (TVM ``autotvm/record.py``)."""
    return orjson.dumps(
        {
            "input": orjson.loads(task.blob or "[]"),
            "config": orjson.Fragment(row["schedule"]),
            "result": tvm_result(row, FAILURE_S),
            "version": 0.2,
            "tvm_version": row["tvm_version"] or "unknown",
        }
    )


class AutoTVMReader:
    """Reads AutoTVM lines of both versions into readings."""

    def __init__(self, machine: str | None = None) -> None:
        self._machine = machine
        self._tasks = Interner()
        self._sketches = Interner()

    def interpret(self, entry: Any, index: int = 0, line: bytes = b"") -> Reading:
        """Interpret a decoded line (the module's docstring has the layouts)."""
        if "input" in entry:
            inputs, told, result = entry["input"], entry.get("config"), entry.get("result")
            version, tvm_version = entry.get("version"), entry.get("tvm_version")
            if not isinstance(inputs, list) or len(inputs) < 4:
                raise BadLine("'input' is not a list, or has less than 4 items")
            # The toolkit adds the template key when it exports 0.1 records.
            names = ("index", "code_hash", "entity", "template")
        else:
            inputs, result = entry.get("i"), entry.get("r")
            version, tvm_version = entry.get("v"), None
            if not isinstance(inputs, list) or len(inputs) < 6:
                raise BadLine("'i' is not a list, or has less than 6 items")
            told, names = inputs[5], ("i", "c", "e", "t")
            if not isinstance(told, dict):
                raise BadLine("the configuration is not an object")
        if not isinstance(told, dict) or not isinstance(told.get(names[2]), list):
            raise BadLine("the configuration has no list of entities")
        number, code_hash, entities, template = (told.get(name) for name in names)
        if not isinstance(result, list) or len(result) != 4:
            raise BadLine("the result is not a list of 4 items")
        if type(number) is not int or abs(number) > INT64_MAX:
            raise BadLine("the configuration's index is not a 64-bit integer")
        state, run_times = outcome_of(result[0], result[1])
        task, extents = self._task(inputs, template or "")
        sketch, decisions = self._decide(task, extents, entities)
        config = {"index": number, "code_hash": code_hash, "entity": entities}
        if template:
            config["template"] = template
        return Reading(
            task=task,
            sketch=sketch,
            decisions=decisions,
            schedule=canonical_json(config).decode(),
            format_version=str(version),
            tvm_version=tvm_version if isinstance(tvm_version, str) else None,
            state=state,
            error_number=result[1],
            run_times_s=run_times,
            elapsed_s=seconds(result[2], "cost of the measurement"),
            timestamp=seconds(result[3], "timestamp"),
        )

    def _task(self, inputs: list[Any], template: str) -> tuple[Task, dict[str, int]]:
        """Return the task, and the extents of the axes that its knobs split."""
        target, name, arguments, options = inputs[:4]
        if not isinstance(target, str) or not isinstance(name, str):
            raise BadLine("target and task name are not strings")
        if not isinstance(arguments, list):
            raise BadLine("the task's arguments are not a list")
        workload = f"{name}/{template}" if template else name

        def make() -> tuple[Task, dict[str, int]]:
            extents = axis_extents(name, arguments)
            task = make_task(
                format=FORMAT,
                workload=workload,
                arguments=[*arguments, options] if options else arguments,
                target=target,
                target_kind=target_kind(target),
                machine=self._machine,
                extents=tuple(sorted(set(extents.values()))),
                blob=canonical_json(inputs[:4]).decode(),
            )
            return task, extents

        return self._tasks.made(canonical_json([target, workload, arguments, options]), make)

    def _decide(
        self, task: Task, extents: dict[str, int], entities: Any
    ) -> tuple[Sketch, tuple[int, ...]]:
        shape: list[Any] = []
        decisions: list[int] = []
        words: list[tuple[tuple[int, str], ...]] = []
        for entity in entities:
            if not isinstance(entity, list) or len(entity) != 3:
                raise BadLine("an entity is not [name, kind, value]")
            name, kind, value = entity
            if not isinstance(name, str):
                raise BadLine("an entity's name is not a string")
            if kind == "sp":
                parts = _factors(name, value, extents)
                decisions.extend(parts)
                shape.append([name, kind, len(parts)])
                words.append(())
            elif kind in ("ot", "re", "an"):
                if isinstance(value, dict):
                    raise BadLine(f"the value of {name} is an object")
                decisions.append(word_code(value))
                shape.append([name, kind, 1])
                words.append(labels_of([value]))
            else:
                raise BadLine(f"the entity kind {kind!r} is not sp, ot, re or an")

        def make() -> Sketch:
            knobs = KnobList()
            for (name, kind, width), labels in zip(shape, words, strict=True):
                knobs.add(name, knob_kind(name, kind), width, labels=labels)
            return make_sketch(FORMAT, [task.workload, *shape], knobs.knobs)

        key = canonical_json([task.workload, shape])
        sketch = self._sketches.made(key, make)
        if any(words):
            sketch = self._sketches[key] = learn_labels(sketch, words)
        return sketch, tuple(decisions)


def knob_kind(name: str, entity_kind: str) -> KnobKind:
    """Return the kind of an AutoTVM knob, from its entity and, for ``ot``, its name."""
    if entity_kind == "sp":
        return "tile"
    if entity_kind == "ot" and "unroll" in name:
        return "unroll"
    if entity_kind == "ot" and name.startswith("vec"):
        return "vectorize"
    return "categorical"


def _factors(name: str, value: Any, extents: dict[str, int]) -> list[int]:
    """Return the factors of a split. An outermost -1 is computed (rounded up as in TVM), or 0."""
    if not isinstance(value, list) or not value:
        raise BadLine(f"the split {name} is not a list of factors")
    open_end = type(value[0]) is int and value[0] == -1
    inner = value[1:] if open_end else value
    for part in inner:
        if type(part) is not int or not 0 < part <= INT64_MAX:
            raise BadLine(f"a factor of {name} is not a positive 64-bit integer")
    if not open_end:
        return value
    extent = extents.get(name)
    return [0 if extent is None else -(-extent // math.prod(inner)), *inner]
