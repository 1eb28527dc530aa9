"""Ansor lines read many at a time.

A line is ``{"i": [[task items], [[], [steps]]], "r": [...], "v": "..."}``. The bytes before the
steps recur and are parsed once; steps that agree in all bytes but some numbers are read together
(``ansor_shapes``), and so are all results. Whatever does not fit is left to the reader of single
lines, so that nothing is accepted here that it would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.formats.ansor.reader import FORMAT, AnsorReader
from toolkit.logs.formats.ansor.shapes import Decided, Shapes, Variant
from toolkit.logs.rows.base import BadLine, refuse_deep
from toolkit.logs.rows.chunks import Candidates, Outcomes, Words, make_chunk
from toolkit.logs.rows.columns import Texts
from toolkit.logs.rows.number_runs import Runs
from toolkit.logs.rows.repeated_keys import decode, holds_repeated
from toolkit.logs.rows.rows import Rows
from toolkit.records import Task

_WRITTEN = (
    (b'{"i": [', b", [[], [", b']]], "r": [['),
    (b'{"i":[', b",[[],[", b']]],"r":[['),
)
"""What stands before the task's items, the steps and the costs: as TVM writes, and compact."""
_VERSION = re.compile(rb', ?"v": ?"([ !#-\[\]-~]*)"\}\s*$')
_OPENED, _CLOSED = b"[[],[", b"]]"
"""What TVM writes around the steps, without spaces."""
_REMOVED = b" \0"
"""What canonical steps are without: spaces, and the zeros behind ``Runs.joined``."""
_KEPT = 20_000
BATCH = 2048
"""Lines whose steps are read at once: few enough for a core's cache, many enough for NumPy."""


@dataclass(eq=False)
class _Prefix:
    """What the bytes before lines' steps say, what stands behind the steps, tasks by extents."""

    number: int
    size: int
    items: Any
    mark: bytes
    tasks: dict[tuple[int, ...], Task | None] = field(default_factory=dict)


class _Stretch(NamedTuple):
    """Consecutive lines with the same prefix and the same bytes from their version on."""

    begin: int
    end: int
    prefix: _Prefix
    version: str
    tail: int


@dataclass
class _Apart:
    """Lines taken apart: where they stand, numbers of prefixes, versions, steps and results."""

    places: list[int] = field(default_factory=list)
    prefixes: list[int] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    steps: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)

    def some(self, rows: list[int]) -> _Apart:
        """Some of the lines."""
        return _Apart(*([part[row] for row in rows] for part in vars(self).values()))


class AnsorBlocks:
    """Reads the lines of a block that it understands, and leaves the rest."""

    def __init__(self, reader: AnsorReader) -> None:
        self._reader = reader
        self._known: dict[bytes, _Prefix | None] = {}
        self._prefixes: list[_Prefix] = []
        self._shapes = Shapes(reader)

    def read(self, lines: Sequence[bytes], number: int, rows: Rows) -> list[int]:
        """Read lines with their newlines; return the places left over.

        The first of them is line ``number + 1``.
        """
        if len(self._prefixes) >= _KEPT:
            self._prefixes.clear()
            self._known.clear()
        apart, outcomes = _measured(self._taken_apart(lines))
        left = np.ones(len(lines), dtype=np.bool_)
        if outcomes is not None:
            places = np.array(apart.places, dtype=np.int64)
            left[places[self._add(apart, places + (number + 1), outcomes, rows)]] = False
        return [place for place, one in enumerate(left.tolist()) if one]

    def _taken_apart(self, lines: Sequence[bytes]) -> _Apart:
        apart = _Apart()
        for begin, end, prefix, version, tail in self._stretches(lines):
            stretch, size = lines[begin:end], prefix.size
            places: Sequence[int] = range(begin, end)
            stops = [line.rfind(prefix.mark) for line in stretch]
            if min(stops) < size:
                fine = [n for n, stop in enumerate(stops) if stop >= size]
                stretch, stops = [stretch[n] for n in fine], [stops[n] for n in fine]
                places = [begin + n for n in fine]
            # The costs' two brackets, the last of the mark, belong to the result.
            behind = len(prefix.mark) - 2
            apart.places += places
            apart.prefixes += [prefix.number] * len(places)
            apart.versions += [version] * len(places)
            apart.steps += [line[size:stop] for line, stop in zip(stretch, stops, strict=True)]
            apart.results += [
                line[stop + behind : -tail] for line, stop in zip(stretch, stops, strict=True)
            ]
        return apart

    def _stretches(self, lines: Sequence[bytes]) -> Iterator[_Stretch]:
        """Stretches of lines that belong together, lines that are not understood left out."""
        begin = 0
        while begin < len(lines):
            first = lines[begin]
            head, prefix = self._prefix(first)
            found = _VERSION.search(first)
            if prefix is None or found is None:
                begin += 1
                continue
            tail, end = found[0], begin + 1
            while end < len(lines) and lines[end].startswith(head) and lines[end].endswith(tail):
                end += 1
            yield _Stretch(begin, end, prefix, found[1].decode(), len(tail))
            begin = end

    def _prefix(self, line: bytes) -> tuple[bytes, _Prefix | None]:
        """The bytes before a line's steps and what they say; ``None`` where that is not clear."""
        for start, middle, mark in _WRITTEN:
            cut = line.find(middle) + len(middle)
            if cut < len(middle) or not line.startswith(start):
                continue
            head = line[:cut]
            if head not in self._known:
                items = _items(head[len(start) : -len(middle)])
                known = None
                if items is not None:
                    known = _Prefix(len(self._prefixes), cut, items, mark)
                    self._prefixes.append(known)
                self._known[head] = known
            return head, self._known[head]
        return line, None

    def _add(
        self,
        apart: _Apart,
        lines: NDArray[np.int64],
        outcomes: Outcomes,
        rows: Rows,
    ) -> NDArray[np.intp]:
        """Add a chunk of rows; return which of the lines taken apart are in it."""
        count = len(lines)
        prefixes = np.array(apart.prefixes, dtype=np.int64)
        schedules, decisions = self._decided(apart.steps)
        tasks: list[Task] = []
        codes = np.full(count, -1, dtype=np.int64)
        sizes = np.zeros(count, dtype=np.int64)
        found: list[tuple[Variant, NDArray[np.intp], Decided]] = []
        for variant, members, one in decisions:
            mine, which = self._tasks(prefixes[members], one.extents)
            known = np.array([task is not None for task in mine], dtype=np.bool_)
            numbers = np.cumsum(known) - 1 + len(tasks)
            tasks += [task for task in mine if task is not None]
            fine = one.small & outcomes.good[members] & known[which]
            members = members[fine]
            codes[members], sizes[members] = numbers[which[fine]], one.matrix.shape[1]
            found.append((variant, members, one.some(fine)))
        taken = np.flatnonzero(codes >= 0)
        if not len(taken):
            return taken
        row_of = np.cumsum(codes >= 0) - 1
        used = set(codes[taken].tolist())
        candidates = Candidates(Words([t.task_id for t in tasks], codes[taken]), sizes[taken])
        for variant, members, one in found:
            if len(members):
                candidates.put(row_of[members], variant.sketch, one.matrix)
        chunk = make_chunk(
            format=FORMAT,
            lines=lines[taken],
            candidates=candidates,
            schedules=schedules if len(taken) == count else schedules.some(taken),
            versions=Words.of([apart.versions[row] for row in taken.tolist()]),
            outcomes=outcomes,
            rows=taken,
        )
        sketches = [variant.sketch for variant, members, _ in found if len(members)]
        rows.add_chunk(chunk, [task for n, task in enumerate(tasks) if n in used], sketches)
        return taken

    def _decided(
        self, steps: Sequence[bytes]
    ) -> tuple[Texts, list[tuple[Variant, NDArray[np.intp], Decided]]]:
        """Canonical schedules of all steps, and the rows of each variant with their decisions."""
        texts: list[bytes] = []
        parts: dict[Variant, list[tuple[NDArray[np.intp], Decided]]] = {}
        for begin in range(0, len(steps), BATCH):
            runs = Runs(steps[begin : begin + BATCH])
            texts.append(runs.joined.translate(None, _REMOVED))
            for variant, rows, decided in self._shapes.read(runs):
                parts.setdefault(variant, []).append((rows + begin, decided))
        return _schedules(texts), [
            (
                variant,
                np.concatenate([rows for rows, _ in pieces]),
                Decided.joined([decided for _, decided in pieces]),
            )
            for variant, pieces in parts.items()
        ]

    def _tasks(
        self, prefixes: NDArray[np.int64], extents: NDArray[np.int64]
    ) -> tuple[list[Task | None], NDArray[np.intp]]:
        """Tasks by prefixes and the extents of loops, and each line's."""
        marks = np.concatenate([prefixes[:, None], extents], axis=1)
        if (marks == marks[0]).all():  # a log of one task
            different, which = marks[:1], np.zeros(len(marks), dtype=np.intp)
        else:
            seen: dict[bytes, int] = {}
            told = marks.view(f"V{8 * marks.shape[1]}").ravel().tolist()
            which = np.array([seen.setdefault(mark, len(seen)) for mark in told], dtype=np.intp)
            different = np.frombuffer(b"".join(seen), dtype=np.int64).reshape(len(seen), -1)
        return [
            self._task(self._prefixes[owner], tuple(loops)) for owner, *loops in different.tolist()
        ], which

    def _task(self, prefix: _Prefix, extents: tuple[int, ...]) -> Task | None:
        if extents not in prefix.tasks:
            if len(prefix.tasks) >= _KEPT:
                prefix.tasks.clear()
            try:
                prefix.tasks[extents] = self._reader.task(prefix.items, extents)
            except BadLine:
                prefix.tasks[extents] = None
        return prefix.tasks[extents]


def _items(text: bytes) -> Any:
    """The task's items; ``None`` where they are none."""
    try:
        items = orjson.loads(text)
        refuse_deep(text)
    except (orjson.JSONDecodeError, BadLine):
        return None
    if b"{" in text and holds_repeated(decode(text)):
        return None
    fine = isinstance(items, list) and len(items) >= 2 and type(items[0]) is str
    return items if fine else None


def _schedules(texts: Sequence[bytes]) -> Texts:
    """Canonical schedules, as TVM nests the steps; of steps without spaces, each with a newline."""
    parts: list[bytes | memoryview] = [_OPENED]
    sizes = []
    for text in texts:
        ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
        sizes.append(np.diff(ends, prepend=-1) + (len(_OPENED) + len(_CLOSED) - 1))
        parts.append(text.replace(b"\n", _CLOSED + _OPENED))
    parts[-1] = memoryview(parts[-1])[: -len(_OPENED)]
    return Texts(b"".join(parts), np.concatenate(sizes))


def _measured(apart: _Apart) -> tuple[_Apart, Outcomes | None]:
    """What lines measured; those that do not hold a plain result are left out.

    A result begins with two brackets. All are decoded as one list: where one of them were not
    closed, the next one's brackets would stand inside it, where no plain result has any, and where
    one were closed twice there would be too many.
    """
    try:
        decoded = orjson.loads(b"[" + b",".join(apart.results) + b"]")
        if decoded and len(decoded) == len(apart.results):
            outcomes = Outcomes.read(decoded)
            if outcomes.good.all():
                return apart, outcomes
    except orjson.JSONDecodeError:
        pass
    each = [_decoded(result) for result in apart.results]
    fine = [row for row, result in enumerate(each) if result is not None]
    if not fine:
        return _Apart(), None
    return apart.some(fine), Outcomes.read([each[row] for row in fine])


def _decoded(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
