"""Ansor lines read many at a time.

A line is ``{"i": [[task items], [[], [steps]]], "r": [...], "v": "..."}``. The bytes before the
steps recur and are parsed once; lines that agree in all bytes but the digits from there on are
read together (``ansor_shapes``). Whatever does not fit is left to the reader of single lines, so
that nothing is accepted here that it would refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.ansor import FORMAT, AnsorReader
from toolkit.logs.ansor_shapes import Decided, Measured, Shape, Variant
from toolkit.logs.base import BadLine
from toolkit.logs.chunks import Outcomes, make_chunk
from toolkit.logs.number_runs import BATCH, DIGITS, Runs, Texts
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
        head, prefix = self._prefix(lines[0])
        if all(map(bytes.startswith, lines, repeat(head))):  # a log of one task
            owners, size = [(0, prefix)], len(head)
            rests = [line[size:] for line in lines]
        else:
            owners, rests = self._owners(lines)
        together = b"\n".join(rests)
        without = together.translate(None, DIGITS)
        first = without[: without.find(b"\n") + 1]
        if len(owners) == 1 and prefix and without + b"\n" == first * len(lines):  # of one shape
            whose = np.full(len(lines), id(prefix))
            return self._read_group(
                {id(prefix): prefix},
                whose,
                first,
                range(len(lines)),
                Texts.joined(together),
                number,
                rows,
            )
        keys = without.split(b"\n")
        ends = [place for place, _ in owners[1:]] + [len(lines)]
        left: list[int] = []
        prefixes: dict[int, _Prefix] = {}
        whose = np.zeros(len(lines), dtype=np.int64)
        groups: dict[bytes, list[int]] = {}
        for (begin, prefix), end in zip(owners, ends, strict=True):
            if prefix is None:
                left += range(begin, end)
                continue
            prefixes[id(prefix)] = prefix
            whose[begin:end] = id(prefix)
            for place, key in enumerate(keys[begin:end], begin):
                if key in groups:
                    groups[key].append(place)
                else:
                    groups[key] = [place]
        for key, places in groups.items():
            texts = Texts([rests[place] for place in places])
            left += self._read_group(prefixes, whose, key + b"\n", places, texts, number, rows)
        left.sort()
        return left

    def _owners(
        self, lines: Sequence[bytes]
    ) -> tuple[list[tuple[int, _Prefix | None]], list[bytes]]:
        """Where each prefix begins to hold, and all lines without theirs."""
        owners: list[tuple[int, _Prefix | None]] = []
        rests: list[bytes] = []
        head, size = b"\n", 1  # what no line begins with
        for place, line in enumerate(lines):
            if not line.startswith(head):
                head, prefix = self._prefix(line)
                size = len(head)
                owners.append((place, prefix))
            rests.append(line[size:])
        return owners, rests

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
        prefixes: dict[int, _Prefix],
        whose: NDArray[np.int64],
        key: bytes,
        places: Sequence[int],
        texts: Texts,
        number: int,
        rows: Rows,
    ) -> list[int]:
        """Read lines of one shape; return the places left over.

        ``whose`` tells the prefix of each line of the block.
        """
        shape = self._shape(key, texts.text(0), prefixes[int(whose[places[0]])].mark)
        if shape is None:
            return list(places)
        decided: dict[Variant, list[tuple[NDArray[np.intp], Decided]]] = {}
        found: list[Runs] = []
        for begin in range(0, len(texts), BATCH):
            runs = shape.pattern.find(texts, begin)
            for variant, rows_of in shape.variants(texts, runs, self._reader):
                one = variant.decide(runs.some(rows_of))
                before = sum(len(part.order) for part in found)
                decided.setdefault(variant, []).append((rows_of + before, one))
            found.append(runs.behind(shape.steps))
        runs = found[0] if len(found) == 1 else _joined(found)
        measured, good = shape.measured(runs)
        outcomes = _outcomes(measured)
        schedules = shape.schedules(texts, runs)
        lines = np.array(places, dtype=np.int64)[runs.order]
        taken = np.zeros(len(places), dtype=np.bool_)
        for variant, parts in decided.items():
            members = np.concatenate([rows_of for rows_of, _ in parts])
            one = Decided.joined([one for _, one in parts])
            marks = np.column_stack([whose[lines[members]], one.extents])
            tasks, which = self._tasks(prefixes, marks)
            known = np.array([task is not None for task in tasks], dtype=np.bool_)
            fine = one.small & good[members] & known[which]
            if not fine.any():
                continue
            if not fine.all():
                one = Decided(one.matrix[fine], one.small[fine], one.extents[fine])
                members, which = members[fine], which[fine]
            taken[runs.order[members]] = True
            ids = ["" if task is None else task.task_id for task in tasks]
            chunk = make_chunk(
                format=FORMAT,
                lines=lines[members] + (number + 1),
                task_ids=[ids[place] for place in which.tolist()],
                sketch=variant.sketch,
                decisions=one.matrix,
                schedules=list(map(schedules.__getitem__, members.tolist())),
                versions=[shape.version] * len(members),
                outcomes=outcomes,
                rows=members,
            )
            used = set(which.tolist())
            rows.add_chunk(
                chunk, [t for n, t in enumerate(tasks) if t and n in used], variant.sketch
            )
        return [] if taken.all() else np.array(places)[~taken].tolist()

    def _tasks(
        self, prefixes: dict[int, _Prefix], marks: NDArray[np.int64]
    ) -> tuple[list[Task | None], NDArray[np.intp]]:
        """Tasks by what stands before the steps and the extents of loops, and each line's."""
        if (marks == marks[0]).all():  # a log of one task
            different, which = marks[:1], np.zeros(len(marks), dtype=np.intp)
        else:
            seen: dict[bytes, int] = {}
            told = np.ascontiguousarray(marks).view(f"V{8 * marks.shape[1]}").ravel().tolist()
            which = np.array([seen.setdefault(mark, len(seen)) for mark in told], dtype=np.intp)
            different = np.frombuffer(b"".join(seen), dtype=np.int64).reshape(len(seen), -1)
        return [
            self._task(prefixes[owner], tuple(extents)) for owner, *extents in different.tolist()
        ], which

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


def _items(text: bytes) -> Any:
    """The task's items; ``None`` where they are none."""
    try:
        items = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    fine = isinstance(items, list) and len(items) >= 2 and type(items[0]) is str
    return items if fine else None


def _joined(parts: list[Runs]) -> Runs:
    """Runs of the same texts, one after the other."""
    told = [np.concatenate(columns) for columns in zip(*(part[1:] for part in parts), strict=True)]
    return Runs(parts[0].data, *told)


def _outcomes(measured: Measured) -> Outcomes:
    count, width = measured.costs.shape
    counts = np.full(count, width, dtype=np.int64)
    costs = measured.costs.ravel()
    return Outcomes(costs, counts, measured.errors, measured.elapsed, measured.timestamps)
