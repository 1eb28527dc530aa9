"""Make tasks and sketches with their ids; equal ones are one object inside a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from toolkit.logs.rows.base import check_extents, check_shapes, word_code
from toolkit.records import Knob, Sketch, Task, canonical_json, content_id

_CACHE_LIMIT = 100_000
_T = TypeVar("_T")


class Interner(dict[Any, Any]):
    """Keeps one object per key, so that each task of a log of millions of lines exists once."""

    def made(self, key: Any, make: Callable[[], _T]) -> _T:
        """Return the object of a key; make it on first use."""
        found: _T | None = self.get(key)
        if found is None:
            if len(self) >= _CACHE_LIMIT:
                self.clear()
            found = self[key] = make()
        return found


def make_task(
    *,
    format: str,
    workload: str,
    arguments: Any,
    target: str,
    target_kind: str,
    hardware: dict[str, Any] | None = None,
    machine: str | None = None,
    extents: Sequence[int] = (),
    blob: str | None = None,
    identity: Any = None,
    named: bool = True,
) -> Task:
    """Make a task; its id is a hash of everything that identifies it.

    ``identity`` is what only the format knows (MetaSchedule: the workload's structural hash; Ansor:
    the extents, if the key does not give the shapes). Extents and the blob are not hashed: they are
    read from schedules or repeat the workload. The workload's name is not hashed if it is only a
    label (``named=False``). Raises ``BadLine`` for impossible extents or shapes.
    """
    check_extents(extents)
    check_shapes(arguments)
    hardware, extents = hardware or {}, tuple(extents)
    name = workload if named else ""
    told = [canonical_json(part) for part in (arguments, hardware, identity)]
    task_id = content_id("task", format, name, told[0], target, told[1], machine or "", told[2])
    return Task(
        task_id, format, workload, arguments, target, target_kind, hardware, machine, extents, blob
    )


def task_of(entry: dict[str, Any]) -> Task:
    """Return a task from its fields, as JSON holds them."""
    return Task(**{**entry, "extents": tuple(entry["extents"])})


def sketch_of(entry: dict[str, Any]) -> Sketch:
    """Return a sketch from its fields, as JSON holds them."""
    knobs = []
    for knob in entry["knobs"]:
        choices = None if knob["choices"] is None else tuple(knob["choices"])
        labels = tuple((code, word) for code, word in knob["labels"])
        knobs.append(Knob(**{**knob, "choices": choices, "labels": labels}))
    return Sketch(**{**entry, "knobs": tuple(knobs)})


def make_sketch(format: str, skeleton: Any, knobs: Sequence[Knob]) -> Sketch:
    """Make a sketch whose id is the hash of its skeleton."""
    text = canonical_json(skeleton).decode()
    return Sketch(content_id("sketch", format, text), format, text, tuple(knobs))


class KnobList:
    """Places knobs in the flat decision vector, and makes their names unique."""

    def __init__(self) -> None:
        self.knobs: list[Knob] = []
        self._width = 0
        self._names: dict[str, int] = {}

    def add(
        self,
        name: str,
        kind: Any,
        width: int = 1,
        choices: tuple[int, ...] | None = None,
        labels: tuple[tuple[int, str], ...] = (),
    ) -> None:
        """Append a knob; ``#2``, ``#3``, ... is added to a name that is taken."""
        count = self._names[name] = self._names.get(name, 0) + 1
        unique = name if count == 1 else f"{name}#{count}"
        self.knobs.append(Knob(unique, kind, self._width, width, choices, labels))
        self._width += width


def labels_of(values: Iterable[Any]) -> tuple[tuple[int, str], ...]:
    """Return code and word of each value that is no integer."""
    words = (value for value in values if type(value) is not int)
    return tuple((word_code(word), canonical_json(word).decode()) for word in words)


def learn_labels(sketch: Sketch, words: Sequence[tuple[tuple[int, str], ...]]) -> Sketch:
    """Return the sketch with the labels of new words added.

    ``words`` has one tuple of (code, word) pairs per knob. The id stays the same: labels do not
    identify a sketch.
    """
    met = list(zip(sketch.knobs, words, strict=True))
    if all(label in knob.labels for knob, new in met for label in new):
        return sketch
    knobs = [replace(knob, labels=tuple(sorted({*knob.labels, *new}))) for knob, new in met]
    return replace(sketch, knobs=tuple(knobs))


def merge_sketches(one: Sketch, other: Sketch) -> Sketch:
    """Unite the labels that two sources know of the same sketch."""
    return learn_labels(one, [knob.labels for knob in other.knobs])


def merge_tasks(one: Task, other: Task) -> Task:
    """Unite what two records know of the same task: the longer extents, in either order."""
    if (len(other.extents), other.extents) > (len(one.extents), one.extents):
        return replace(one, extents=other.extents)
    return one
