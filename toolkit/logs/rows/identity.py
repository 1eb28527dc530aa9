"""Tasks and sketches with their ids; equal ones are the same object inside a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from toolkit.logs.rows.base import check_extents, check_shapes, word_code
from toolkit.records import Knob, Sketch, Task, canonical_json, content_id

_CACHE_LIMIT = 100_000
_T = TypeVar("_T")


class Interner(dict[Any, Any]):
    """Keeps one object a key, so that a log of millions of lines holds each task once."""

    def made(self, key: Any, make: Callable[[], _T]) -> _T:
        """Return the object of that key, made on first sight."""
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
    """Make a task whose id follows from all that tells it apart.

    ``identity`` stands for what only the format knows (MetaSchedule: the workload's structural
    hash; Ansor: the extents where the key alone does not tell shapes). Extents and the blob do
    not enter by themselves: they are read from schedules or repeat the workload. Where the
    workload's name is only a label (``named=False``) it does not enter either. Raises ``BadLine``
    for extents or shapes that no tensor has.
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


def make_sketch(format: str, skeleton: Any, knobs: Sequence[Knob]) -> Sketch:
    """Make a sketch whose id is the hash of its skeleton."""
    text = canonical_json(skeleton).decode()
    return Sketch(content_id("sketch", format, text), format, text, tuple(knobs))


class KnobList:
    """Lays knobs side by side in the flat decision vector and keeps their names apart."""

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
        """Append a knob; a name that is taken gets ``#2``, ``#3``, ... behind it."""
        count = self._names[name] = self._names.get(name, 0) + 1
        unique = name if count == 1 else f"{name}#{count}"
        self.knobs.append(Knob(unique, kind, self._width, width, choices, labels))
        self._width += width


def labels_of(values: Iterable[Any]) -> tuple[tuple[int, str], ...]:
    """Code and word of each value that is no integer."""
    words = (value for value in values if type(value) is not int)
    return tuple((word_code(word), canonical_json(word).decode()) for word in words)


def learn_labels(sketch: Sketch, words: Sequence[tuple[tuple[int, str], ...]]) -> Sketch:
    """Return the sketch with labels added where a knob met a word for the first time.

    ``words`` has one tuple of (code, word) a knob. The id stays: labels explain, they do not
    tell sketches apart.
    """
    met = list(zip(sketch.knobs, words, strict=True))
    if all(label in knob.labels for knob, new in met for label in new):
        return sketch
    knobs = [replace(knob, labels=tuple(sorted({*knob.labels, *new}))) for knob, new in met]
    return replace(sketch, knobs=tuple(knobs))


def merge_sketches(one: Sketch, other: Sketch) -> Sketch:
    """Unite the labels and choices that two sources know of the same sketch."""
    return learn_labels(one, [knob.labels for knob in other.knobs])


def merge_tasks(one: Task, other: Task) -> Task:
    """Unite what two records know of the same task: the most extents, whichever came first."""
    if (len(other.extents), other.extents) > (len(one.extents), one.extents):
        return replace(one, extents=other.extents)
    return one
