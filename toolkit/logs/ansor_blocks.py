"""Ansor lines read many at a time.

A line is ``{"i": [[task items], [[], [steps]]], "r": [...], "v": "..."}``. The bytes before the
steps recur and are parsed once; lines that agree in all bytes but the digits from there on are
read together (``ansor_shapes``). Whatever does not fit is left to the reader of single lines, so
that nothing is accepted here that it would refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.ansor import FORMAT, AnsorReader
from toolkit.logs.ansor_shapes import Decided, Measured, Shape, Variant
from toolkit.logs.base import BadLine
from toolkit.logs.chunks import Outcomes, make_chunk
from toolkit.logs.number_runs import BATCH, DIGITS
from toolkit.logs.rows import Rows
from toolkit.records import Task

_WRITTEN = (
    (b'{"i": [', b", [[], [", b']]], "r": '),
    (b'{"i":[', b",[[],[", b']]],"r":'),
)
"""What stands before the task's items, the steps and the result: as TVM writes, and compact."""
_KEPT = 20_000


@dataclass
class _Prefix:
    """What the bytes before lines' steps say, the mark behind the steps, and tasks by extents."""

    items: Any
    mark: bytes
    tasks: dict[tuple[int, ...], Task] = field(default_factory=dict)


class AnsorBlocks:
    """Reads the lines of a block that it understands, and leaves the rest."""

    def __init__(self, reader: AnsorReader) -> None:
        self._reader = reader
        self._prefixes: dict[bytes, _Prefix | None] = {}
        self._shapes: dict[bytes, Shape | None] = {}

    def read(self, lines: Sequence[bytes], number: int, rows: Rows) -> list[int]:
        """Read lines, of which the first is line ``number + 1``; return the places left over."""
        if not lines:
            return []
        left: list[int] = []
        rests: list[bytes] = []
        owners: list[tuple[int, _Prefix | None]] = []
        head, size = b"\n", 1
        for place, line in enumerate(lines):
            if not line.startswith(head):
                head, prefix = self._prefix(line)
                size = len(head)
                owners.append((place, prefix))
            rests.append(line[size:])
        keys = b"\n".join(rests).translate(None, DIGITS).split(b"\n")
        ends = [place for place, _ in owners[1:]] + [len(lines)]
        groups: dict[int, tuple[_Prefix, dict[bytes, list[int]]]] = {}
        for (begin, prefix), end in zip(owners, ends, strict=True):
            if prefix is None:
                left += range(begin, end)
                continue
            members = groups.setdefault(id(prefix), (prefix, {}))[1]
            for place in range(begin, end):
                key = keys[place]
                if key in members:
                    members[key].append(place)
                else:
                    members[key] = [place]
        for prefix, members in groups.values():
            for key, places in members.items():
                left += self._read_group(prefix, key, places, rests, number, rows)
        left.sort()
        return left

    def _prefix(self, line: bytes) -> tuple[bytes, _Prefix | None]:
        """The bytes before a line's steps and what they say; ``None`` where that is not clear."""
        for start, middle, mark in _WRITTEN:
            cut = line.find(middle) + len(middle)
            if cut < len(middle) or not line.startswith(start):
                continue
            head = line[:cut]
            if head not in self._prefixes:
                if len(self._prefixes) >= _KEPT:
                    self._prefixes.clear()
                items = _items(head[len(start) : -len(middle)])
                self._prefixes[head] = None if items is None else _Prefix(items, mark)
            return head, self._prefixes[head]
        return line + b"\n", None  # what no line begins with

    def _shape(self, key: bytes, text: bytes, mark: bytes) -> Shape | None:
        if key not in self._shapes:
            if len(self._shapes) >= _KEPT:
                self._shapes.clear()
            self._shapes[key] = Shape.of(text, mark)
        return self._shapes[key]

    def _read_group(
        self,
        prefix: _Prefix,
        key: bytes,
        places: list[int],
        rests: list[bytes],
        number: int,
        rows: Rows,
    ) -> list[int]:
        """Read lines of one prefix and shape; return the places left over."""
        shape = self._shape(key, rests[places[0]], prefix.mark)
        if shape is None:
            return places
        group = _Group(prefix, shape, np.array(places, dtype=np.int64))
        decided: dict[Variant, list[tuple[NDArray[np.intp], Decided]]] = {}
        for at in range(0, len(places), BATCH):
            texts = [rests[place] for place in places[at : at + BATCH]]
            runs = shape.pattern.find(texts)
            measured, good = shape.measured(runs)
            for variant, mine in shape.variants(texts, runs, np.flatnonzero(good), self._reader):
                here = variant.decide(runs.some(mine))
                decided.setdefault(variant, []).append((mine + len(group.schedules), here))
            group.add(runs.order + at, measured, shape.schedules(runs))
        outcomes = group.outcomes()
        taken = np.zeros(len(places), dtype=np.bool_)
        for variant, parts in decided.items():
            members, found = zip(*parts, strict=True)
            joined = Decided.joined(found)
            added = self._add(
                group, variant, joined, np.concatenate(members), outcomes, rows, number
            )
            taken[added] = True
        return [place for place, fine in zip(places, taken.tolist(), strict=True) if not fine]

    def _add(
        self,
        group: _Group,
        variant: Variant,
        decided: Decided,
        members: NDArray[np.intp],
        outcomes: Outcomes,
        rows: Rows,
        number: int,
    ) -> NDArray[np.intp]:
        """Add the rows of one variant; return the places in the group of those that were."""
        tasks = self._tasks(group.prefix, decided.extents)
        fine = decided.small.copy()
        if None in tasks:
            fine &= np.array([task is not None for task in tasks], dtype=np.bool_)
        if not fine.all():
            decided = Decided(decided.matrix[fine], decided.small[fine], decided.extents[fine])
            tasks = [task for task, mine in zip(tasks, fine.tolist(), strict=True) if mine]
            members = members[fine]
        known = [task for task in tasks if task is not None]
        order = group.order()[members]
        if not known:
            return order
        chunk = make_chunk(
            format=FORMAT,
            lines=group.places[order] + (number + 1),
            task_ids=[task.task_id for task in known],
            sketch=variant.sketch,
            decisions=decided.matrix,
            schedules=[group.schedules[row] for row in members.tolist()],
            versions=[group.shape.version] * len(known),
            outcomes=outcomes,
            rows=members,
        )
        rows.add_chunk(chunk, {id(task): task for task in known}.values(), variant.sketch)
        return order

    def _tasks(self, prefix: _Prefix, extents: NDArray[np.int64]) -> list[Task | None]:
        """Tasks of lines by what stands before their steps and the extents of their loops."""
        if (extents == extents[0]).all():  # the usual case
            return [self._task(prefix, tuple(extents[0].tolist()))] * len(extents)
        return [self._task(prefix, tuple(row)) for row in extents.tolist()]

    def _task(self, prefix: _Prefix, extents: tuple[int, ...]) -> Task | None:
        task = prefix.tasks.get(extents)
        if task is None:
            try:
                task = self._reader.task(prefix.items, extents)
            except BadLine:
                return None
            if len(prefix.tasks) >= _KEPT:
                prefix.tasks.clear()
            prefix.tasks[extents] = task
        return task


@dataclass
class _Group:
    """Lines of one prefix and shape; ``places`` are theirs in the block.

    Those that have the shape are added batch by batch.
    """

    prefix: _Prefix
    shape: Shape
    places: NDArray[np.int64]
    schedules: list[bytes] = field(default_factory=list)
    _orders: list[NDArray[np.intp]] = field(default_factory=list)
    _measured: list[Measured] = field(default_factory=list)

    def add(self, order: NDArray[np.intp], measured: Measured, schedules: list[bytes]) -> None:
        self.schedules += schedules
        self._orders.append(order)
        self._measured.append(measured)

    def order(self) -> NDArray[np.intp]:
        """Places in the group of the lines that were added."""
        return np.concatenate(self._orders)

    def outcomes(self) -> Outcomes:
        """What the lines that were added measured."""
        told = Measured(*map(np.concatenate, zip(*self._measured, strict=True)))
        count, width = told.costs.shape
        counts = np.full(count, width, dtype=np.int64)
        return Outcomes(told.costs.ravel(), counts, told.errors, told.elapsed, told.timestamps)


def _items(text: bytes) -> Any:
    """The task's items; ``None`` where they are none."""
    try:
        items = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    fine = isinstance(items, list) and len(items) >= 2 and type(items[0]) is str
    return items if fine else None
