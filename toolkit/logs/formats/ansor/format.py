"""The format Ansor, and a reader of many lines at a time.

A line is ``{"i": [[task items], [[], [steps]]], "r": [...], "v": "..."}``. The bytes before the
steps recur and are parsed once. Steps that differ only in some numbers are read together
(``shapes``), and so are all results. All other lines are left to the reader of single lines, so
that no line is accepted here that it would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.formats.ansor.reader import FORMAT, AnsorReader
from toolkit.logs.formats.ansor.shapes import Decided, Shapes, Variant
from toolkit.logs.rows.base import BadLine, refuse_deep
from toolkit.logs.rows.columns import Candidates, Outcomes, Texts, Words
from toolkit.logs.rows.format import FAILURE_S, LineFormat, Row, Selection, tvm_result
from toolkit.logs.rows.json_text import decode, holds_repeated
from toolkit.logs.rows.number_runs import Runs
from toolkit.logs.rows.rows import Rows, make_chunk
from toolkit.records import Sketch, Task

_WRITTEN = (
    (b'{"i": [', b", [[], [", b']]], "r": [['),
    (b'{"i":[', b",[[],[", b']]],"r":[['),
)
"""The text before the task's items, the steps and the costs: as TVM writes it, and compact."""
_VERSION = re.compile(rb', ?"v": ?"([ !#-\[\]-~]*)"\}\s*$')
_LAST = 100
"""Bytes at a line's end in which the version is looked for."""
_OPENED, _CLOSED = b"[[],[", b"]]"
"""The text around the steps, without spaces."""
_REMOVED = b" \0"
"""Bytes to remove for canonical steps: spaces, and the zeros at the end of ``Runs.joined``."""
_KEPT = 20_000
FIRST, BATCH, MANY = 256, 4096, 16_384
"""Number of lines whose steps are read at once: of the first lines, which are searched for numbers,
of lines that mostly have one variant (4,096 fit a core's cache), and of lines of many variants."""


class Ansor(LineFormat):
    """Ansor v0.2 to v0.6."""

    name = FORMAT
    extractor = "primitives"
    mutation_weights = "ansor"
    bare_workloads = True
    writes = frozenset({FORMAT})
    learns = True

    def accepts(self, entry: Any) -> bool:
        """Whether the line's input begins with a list of task items."""
        if not isinstance(entry, dict) or ("input" in entry and "config" in entry):
            return False
        inputs = entry.get("i")
        nested = isinstance(inputs, list) and inputs and isinstance(inputs[0], list)
        return "r" in entry and bool(nested)

    def reader(self, machine: str | None, beside: Any = None) -> AnsorReader:
        return AnsorReader(machine)

    def together(self, reader: AnsorReader) -> AnsorBlocks:
        """Return a reader of many lines at once: steps that differ only in numbers are grouped."""
        return AnsorBlocks(reader)

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        return {out: selection.lines(ansor_line)}


def ansor_line(row: Row, task: Task) -> bytes:
    """Make an Ansor v0.6 line (TVM ``auto_scheduler/measure_record.cc``).

    Only v0.2 has tasks without hardware parameters: their lines stay v0.2, and TVM adds its
    defaults.
    """
    items = orjson.loads(task.blob or "[]")
    bare = len(items) < 3 or not items[2]
    inputs = [items[:2] if bare else items, orjson.Fragment(row["schedule"])]
    version = "v0.2" if bare else "v0.6"
    return orjson.dumps({"i": inputs, "r": tvm_result(row, FAILURE_S), "v": version})


class _Prefix(NamedTuple):
    """The content of the bytes before the steps of lines, and the text after the steps."""

    number: int
    size: int
    items: Any
    mark: bytes


@dataclass
class _Apart:
    """Lines split into parts: indices of lines, numbers of prefixes, versions, steps, results."""

    places: list[int] = field(default_factory=list)
    prefixes: list[int] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    steps: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)


class AnsorBlocks:
    """Reads the lines of a block that have the usual layout, and leaves the others."""

    def __init__(self, reader: AnsorReader) -> None:
        self._reader = reader
        self._known: dict[bytes, _Prefix | None] = {}
        self._prefixes: list[_Prefix] = []
        self._shapes = Shapes(reader)

    def read(self, lines: Sequence[bytes], number: int, rows: Rows) -> list[int]:
        """Read lines with their newlines; return the indices of lines that were not read.

        The first line is line ``number + 1`` of the source.
        """
        if len(self._prefixes) >= _KEPT:
            self._prefixes.clear()
            self._known.clear()
        apart = self._taken_apart(lines)
        left = np.ones(len(lines), dtype=np.bool_)
        if apart.places:
            places = np.array(apart.places, dtype=np.int64)
            left[places[self._add(apart, places + (number + 1), rows)]] = False
        found: list[int] = np.flatnonzero(left).tolist()
        return found

    def _taken_apart(self, lines: Sequence[bytes]) -> _Apart:
        """Split lines; consecutive lines with the same prefix and version are handled together."""
        apart = _Apart()
        end = 0
        while end < len(lines):
            begin, first = end, lines[end]
            end += 1
            head, prefix = self._prefix(first)
            version = _VERSION.search(first[-_LAST:])
            if prefix is None or version is None:
                continue
            tail, size = version[0], prefix.size
            for line in lines[end:]:
                if not (line.startswith(head) and line.endswith(tail)):
                    break
                end += 1
            places: Sequence[int] = range(begin, end)
            run, mark = lines[begin:end], prefix.mark
            stops = [line.rfind(mark) for line in run]
            if min(stops) < size:
                places = [place for place, stop in zip(places, stops, strict=True) if stop >= size]
                run = [lines[place] for place in places]
                stops = [stop for stop in stops if stop >= size]
            # The last two bytes of the mark, the brackets of the costs, belong to the result.
            behind, until = len(mark) - 2, -len(tail)
            apart.places += places
            apart.prefixes += [prefix.number] * len(places)
            apart.versions += [version[1].decode()] * len(places)
            cuts = zip(run, stops, strict=True)
            apart.steps += [line[size:stop] for line, stop in cuts]
            cuts = zip(run, stops, strict=True)
            apart.results += [line[stop + behind : until] for line, stop in cuts]
        return apart

    def _prefix(self, line: bytes) -> tuple[bytes, _Prefix | None]:
        """Return the bytes before a line's steps and their content; ``None`` if not valid."""
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

    def _add(self, apart: _Apart, lines: NDArray[np.int64], rows: Rows) -> NDArray[np.intp]:
        outcomes, good = _measured(apart.results)
        prefixes = np.array(apart.prefixes, dtype=np.int64)
        schedules, decisions = self._decided(apart.steps)
        tasks: list[Task | None] = []
        codes = np.full(len(lines), -1, dtype=np.int64)
        sizes = np.zeros(len(lines), dtype=np.int64)
        found: dict[str, list[tuple[Sketch, NDArray[np.intp], NDArray[np.int64]]]] = {}
        for variant, members, one in decisions:
            mine, which = self._tasks(prefixes[members], one.extents)
            known = np.array([task is not None for task in mine], dtype=np.bool_)
            fine = one.small & good[members] & known[which]
            if fine.any():
                members = members[fine]
                codes[members] = which[fine] + len(tasks)
                sizes[members] = one.matrix.shape[1]
                part = variant.sketch, members, one.some(fine).matrix
                found.setdefault(variant.sketch.sketch_id, []).append(part)
                tasks += mine
        understood = codes >= 0
        taken = np.flatnonzero(understood)
        if not len(taken):
            return taken
        row_of = np.cumsum(understood) - 1
        codes = codes[taken]
        ids = Words(["" if task is None else task.task_id for task in tasks], codes)
        candidates = Candidates(ids, sizes[taken])
        for parts in found.values():
            sketches, members_of, matrices = zip(*parts, strict=True)
            members = np.concatenate(members_of)
            candidates.put(row_of[members], sketches[0], np.concatenate(matrices))
        chunk = make_chunk(
            format=Words([FORMAT], np.zeros(len(taken), dtype=np.int64)),
            lines=lines[taken],
            candidates=candidates,
            schedules=schedules if understood.all() else schedules.some(taken),
            versions=Words.of([apart.versions[row] for row in taken.tolist()]),
            outcomes=outcomes.some(understood),
        )
        used = [tasks[code] for code in sorted(set(codes.tolist()))]
        rows.add_chunk(chunk, filter(None, used), [parts[0][0] for parts in found.values()])
        return taken

    def _decided(
        self, steps: Sequence[bytes]
    ) -> tuple[Texts, list[tuple[Variant, NDArray[np.intp], Decided]]]:
        """Return canonical schedules of all steps, and each variant's rows with their decisions."""
        texts: list[bytes] = []
        parts: dict[Variant, list[tuple[NDArray[np.intp], Decided]]] = {}
        begin = 0
        while begin < len(steps):
            size = FIRST if not self._shapes.met else BATCH if self._shapes.usual else MANY
            runs = Runs(steps[begin : begin + size])
            texts.append(runs.joined.translate(None, _REMOVED))
            for variant, rows, decided in self._shapes.read(runs):
                parts.setdefault(variant, []).append((rows + begin, decided))
            begin += len(runs)
        joined = []
        for variant, pieces in parts.items():
            rows_of, decisions = zip(*pieces, strict=True)
            joined.append((variant, np.concatenate(rows_of), Decided.joined(decisions)))
        return _schedules(texts), joined

    def _tasks(
        self, prefixes: NDArray[np.int64], extents: NDArray[np.int64]
    ) -> tuple[list[Task | None], NDArray[np.intp]]:
        """Return the tasks for prefixes and extents of loops, and each line's index among them."""
        marks = np.concatenate([prefixes[:, None], extents], axis=1)
        if (marks == marks[0]).all():  # a log of one task
            different, which = marks[:1], np.zeros(len(marks), dtype=np.intp)
        else:
            seen: dict[bytes, int] = {}
            told = marks.view(f"V{8 * marks.shape[1]}").ravel().tolist()
            which = np.array([seen.setdefault(mark, len(seen)) for mark in told], dtype=np.intp)
            different = np.frombuffer(b"".join(seen), dtype=np.int64).reshape(len(seen), -1)
        tasks: list[Task | None] = []
        for owner, *loops in different.tolist():
            try:
                tasks.append(self._reader.task(self._prefixes[owner].items, tuple(loops)))
            except BadLine:
                tasks.append(None)
        return tasks, which


def _items(text: bytes) -> Any:
    try:
        items = orjson.loads(text)
        refuse_deep(text)
    except (orjson.JSONDecodeError, BadLine):
        return None
    if b"{" in text and holds_repeated(decode(text)):
        return None
    return items if isinstance(items, list) and len(items) >= 2 and type(items[0]) is str else None


def _schedules(texts: Sequence[bytes]) -> Texts:
    """Make canonical schedules from steps (without spaces, a newline after each)."""
    parts: list[bytes | memoryview] = [_OPENED]
    sizes = []
    for text in texts:
        ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
        sizes.append(np.diff(ends, prepend=-1) + (len(_OPENED) + len(_CLOSED) - 1))
        parts.append(text.replace(b"\n", _CLOSED + _OPENED))
    parts[-1] = memoryview(parts[-1])[: -len(_OPENED)]
    return Texts(b"".join(parts), np.concatenate(sizes))


def _measured(results: Sequence[bytes]) -> tuple[Outcomes, NDArray[np.bool_]]:
    """Return the outcomes of lines, and which lines hold a valid result.

    A result begins with two brackets. All results are decoded as one list. If a result has a
    bracket too few, the next result's brackets are inside it, where a valid result has none. If it
    has one too many, the list is not valid JSON.
    """
    decoded = _decoded(b"[" + b",".join(results) + b"]")
    if decoded is not None and len(decoded) == len(results):
        outcomes, good = Outcomes.of_results(decoded)
        if good.all():
            return outcomes, good
    return Outcomes.of_results([_decoded(result) for result in results])


def _decoded(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
