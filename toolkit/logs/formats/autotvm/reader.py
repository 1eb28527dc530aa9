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

from typing import Any

import orjson

from toolkit.logs.formats.autotvm.extents import axis_extents
from toolkit.logs.rows.base import (
    INT64_MAX,
    BadLine,
    Reading,
    integer,
    outcome_of,
    seconds,
    target_kind,
    word_code,
)
from toolkit.logs.rows.identity import Interner, KnobList, learn_labels, make_sketch, make_task
from toolkit.records import KnobKind, Sketch, Task, canonical_json

FORMAT = "autotvm"


def knob_kind(name: str, entity_kind: str) -> KnobKind:
    """Say what an AutoTVM knob decides: by its entity, and by its name where that is ``ot``."""
    if entity_kind == "sp":
        return "tile"
    if entity_kind == "ot":
        if "unroll" in name:
            return "unroll"
        if name.startswith("vec"):
            return "vectorize"
    return "categorical"


class AutoTVMReader:
    """Reads AutoTVM lines of both versions into readings."""

    format = FORMAT

    def __init__(self, machine: str | None = None) -> None:
        self._machine = machine
        self._tasks = Interner()
        self._sketches = Interner()

    def read(self, line: bytes, index: int) -> Reading:
        """Read one line (see the module's text for the layouts)."""
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BadLine(f"not JSON: {error}") from None
        return self.interpret(entry, index, line)

    def interpret(self, entry: Any, index: int = 0, line: bytes = b"") -> Reading:
        """Interpret a line that has been decoded."""
        del index, line
        if not isinstance(entry, dict):
            raise BadLine("an AutoTVM line is a JSON object")
        if "input" in entry:
            inputs, config, result = entry["input"], entry.get("config"), entry.get("result")
            version, tvm_version = entry.get("version"), entry.get("tvm_version")
            if not isinstance(inputs, list) or len(inputs) < 4:
                raise BadLine("'input' has less than 4 items")
            template = ""
            if isinstance(config, dict) and "entity" in config:
                # The template key is the toolkit's own addition when it exports 0.1 records.
                template = config.get("template") or ""
                config = {
                    "index": config.get("index"),
                    "code_hash": config.get("code_hash"),
                    "entity": config["entity"],
                    **({"template": template} if template else {}),
                }
        else:
            inputs, result = entry.get("i"), entry.get("r")
            version, tvm_version = entry.get("v"), None
            if not isinstance(inputs, list) or len(inputs) < 6:
                raise BadLine("'i' has less than 6 items")
            old = inputs[5]
            if not isinstance(old, dict):
                raise BadLine("the configuration is not an object")
            template = old.get("t") or ""
            config = {
                "index": old.get("i"),
                "code_hash": old.get("c"),
                "entity": old.get("e"),
            }
            if template:
                config["template"] = template
        if not isinstance(config, dict) or not isinstance(config.get("entity"), list):
            raise BadLine("the configuration has no entities")
        if not isinstance(result, list) or len(result) != 4:
            raise BadLine("the result has not 4 items")
        integer(config["index"], "the configuration's index")
        state, run_times = outcome_of(result[0], result[1])
        task, extents = self._task(inputs, template)
        sketch, decisions = self._decide(task, extents, config["entity"])
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
        """The task, and the extents of the axes that its knobs split."""
        target, name, arguments, options = inputs[:4]
        if not isinstance(target, str) or not isinstance(name, str):
            raise BadLine("target and task name are not strings")
        if not isinstance(arguments, list):
            raise BadLine("the task's arguments are not a list")
        workload = f"{name}/{template}" if template else name
        key = canonical_json([target, workload, arguments, options])

        def make() -> tuple[Task, dict[str, int]]:
            extents = axis_extents(name, arguments)
            given = [*arguments, options] if options else arguments
            task = make_task(
                format=FORMAT,
                workload=workload,
                arguments=given,
                target=target,
                target_kind=target_kind(target),
                machine=self._machine,
                extents=tuple(sorted(set(extents.values()))),
                blob=canonical_json([target, name, arguments, options]).decode(),
            )
            return task, extents

        kept: tuple[Task, dict[str, int]] = self._tasks.get(key, make)
        return kept

    def _decide(
        self, task: Task, extents: dict[str, int], entities: list[Any]
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
                if not isinstance(value, list) or not value:
                    raise BadLine(f"the split {name} is not a list of factors")
                parts = list(value)
                open_end = type(parts[0]) is int and parts[0] == -1
                for part in parts[1:] if open_end else parts:
                    if type(part) is not int or not 0 < part <= INT64_MAX:
                        raise BadLine(f"a factor of {name} is not a positive 64-bit integer")
                if open_end:
                    parts[0] = _outermost(extents.get(name), parts[1:])
                decisions.extend(parts)
                shape.append([name, kind, len(parts)])
                words.append(())
            elif kind in ("ot", "re", "an"):
                if isinstance(value, dict):
                    raise BadLine(f"the value of {name} is an object")
                code = word_code(value)
                decisions.append(code)
                shape.append([name, kind, 1])
                numeric = type(value) is int
                words.append(() if numeric else ((code, canonical_json(value).decode()),))
            else:
                raise BadLine(f"the entity kind {kind!r} is none of sp, ot, re, an")

        def make() -> Sketch:
            knobs = KnobList()
            for (name, kind, width), labels in zip(shape, words, strict=True):
                knobs.add(name, knob_kind(name, kind), width, labels=labels)
            return make_sketch(FORMAT, [task.workload, *shape], knobs.knobs)

        key = canonical_json([task.workload, shape])
        sketch: Sketch = self._sketches.get(key, make)
        if any(words):
            named = learn_labels(sketch, words)
            if named is not sketch:
                self._sketches.replace(key, named)
            sketch = named
        return sketch, tuple(decisions)


def _outermost(extent: int | None, inner: list[int]) -> int:
    """Factor that completes a split of a known extent, rounded up as TVM's split does; else 0."""
    product = 1
    for part in inner:
        product *= part
    if extent is None or product <= 0:
        return 0
    return -(-extent // product)
