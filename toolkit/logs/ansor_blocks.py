"""Ansor lines read many at a time.

A line is ``{"i": [[task items], [[], [steps]]], "r": [...], "v": "..."}``. The bytes before the
steps recur and are parsed once; the steps are read as matrices of numbers (``number_runs``), one
pattern at a time; only the short result goes through the JSON parser. Whatever does not fit is
left to the reader of single lines, so that nothing is accepted here that it would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.ansor import FORMAT, AnsorReader
from toolkit.logs.ansor_steps import BadStep, PragmaText, Run, StepReader
from toolkit.logs.base import BadLine
from toolkit.logs.chunks import Outcomes, make_chunk
from toolkit.logs.number_runs import BATCH, DIGITS, RunsPattern
from toolkit.logs.rows import Rows
from toolkit.records import Sketch, Task, canonical_json

_START = b'{"i": ['
_MIDDLE = b", [[], ["
_END = b']]], "r": ['
_MANY_VARIANTS = 64
_PRODUCT_LIMIT = float(2**62)


@dataclass
class _Prefix:
    """The bytes before a line's steps, what they say, and tasks by the extents of their loops."""

    items: Any
    tasks: dict[tuple[int, ...], Task] = field(default_factory=dict)


@dataclass
class _Group:
    """Lines with the same bytes between the digits of their steps, column by column."""

    places: Sequence[int]
    prefixes: Sequence[_Prefix]
    steps: Sequence[bytes]
    results: Sequence[Any]
    versions: Sequence[str]


class AnsorBlocks:
    """Reads the lines of a block that it understands, and leaves the rest."""

    def __init__(self, reader: AnsorReader) -> None:
        self._reader = reader
        self._prefixes: dict[bytes, _Prefix] = {}
        self._templates: dict[bytes, _Template | None] = {}

    def read(self, lines: Sequence[bytes], number: int, rows: Rows) -> list[int]:
        """Read lines, of which the first is line ``number + 1``; return the places left over."""
        left: list[int] = []
        groups: dict[bytes, list[tuple[int, _Prefix, bytes, Any, str]]] = {}
        last, prefix = b"\n", None
        for place, line in enumerate(lines):
            if not line.startswith(last):
                found = self._prefix(line)
                if found is None:
                    left.append(place)
                    continue
                last, prefix = found
            end = line.rfind(_END)
            if end < len(last) or prefix is None:
                left.append(place)
                continue
            try:
                tail = orjson.loads(b'{"r": [' + line[end + len(_END) :])
                result, version = tail["r"], tail["v"]
            except (orjson.JSONDecodeError, KeyError):
                left.append(place)
                continue
            if type(version) is not str or len(tail) != 2:
                left.append(place)
                continue
            steps = line[len(last) : end]
            key = steps.translate(None, DIGITS)
            told = (place, prefix, steps, result, version)
            if key in groups:
                groups[key].append(told)
            else:
                groups[key] = [told]
        for key, members in groups.items():
            group = _Group(*zip(*members, strict=True))
            left += self._read_group(key, group, number, rows)
        left.sort()
        return left

    def _prefix(self, line: bytes) -> tuple[bytes, _Prefix] | None:
        """The bytes before a line's steps and what they say; ``None`` where that is not clear."""
        cut = line.find(_MIDDLE) + len(_MIDDLE)
        if cut < len(_MIDDLE) or not line.startswith(_START):
            return None
        head = line[:cut]
        prefix = self._prefixes.get(head)
        if prefix is None:
            try:
                items = orjson.loads(head[len(_START) : -len(_MIDDLE)])
                if not isinstance(items, list) or len(items) < 2 or type(items[0]) is not str:
                    return None
                prefix = _Prefix(items)
            except orjson.JSONDecodeError:
                return None
            self._prefixes[head] = prefix
        return head, prefix

    def _read_group(self, key: bytes, group: _Group, number: int, rows: Rows) -> list[int]:
        if key not in self._templates:
            self._templates[key] = _Template.of(group.steps[0])
        template = self._templates[key]
        if template is None:
            return list(group.places)
        outcomes = Outcomes(group.results)
        good = np.zeros(len(group.places), dtype=np.bool_)
        decided: dict[_Variant, list[_Decided]] = {}
        for at in range(0, len(group.steps), BATCH):
            texts = group.steps[at : at + BATCH]
            values, fine = template.pattern.read(texts)
            waiting = np.flatnonzero(fine & outcomes.good[at : at + BATCH])
            while len(waiting):
                first = waiting[0]
                variant = template.variant(texts[first], values[first], self._reader)
                if variant is None:
                    break
                mine = variant.matches(values, waiting)
                rows_of = values if len(mine) == len(values) else values[mine]
                decided.setdefault(variant, []).append(variant.decide(rows_of, mine + at))
                waiting = np.setdiff1d(waiting, mine, assume_unique=True)
        for variant, parts in decided.items():
            taken = self._add(group, variant, _Decided.joined(parts), outcomes, number, rows)
            good[taken] = True
        return [place for place, fine in zip(group.places, good.tolist(), strict=True) if not fine]

    def _add(
        self,
        group: _Group,
        variant: _Variant,
        decided: _Decided,
        outcomes: Outcomes,
        number: int,
        rows: Rows,
    ) -> NDArray[np.intp]:
        """Add the rows of one variant; return those whose task could be told."""
        members = decided.members.tolist()
        tasks = self._tasks([group.prefixes[place] for place in members], decided.extents)
        fine = decided.small & np.array([task is not None for task in tasks], dtype=np.bool_)
        matrix, taken = decided.matrix, decided.members
        if not fine.all():
            matrix, taken = matrix[fine], taken[fine]
            tasks = [task for task, mine in zip(tasks, fine.tolist(), strict=True) if mine]
            members = taken.tolist()
        known = [task for task in tasks if task is not None]
        if not known:
            return taken
        chunk = make_chunk(
            format=FORMAT,
            lines=np.array([group.places[p] for p in members], dtype=np.int64) + number + 1,
            task_ids=[task.task_id for task in known],
            sketch=variant.sketch,
            decisions=matrix,
            schedules=[b"[[],[" + group.steps[p].translate(None, b" ") + b"]]" for p in members],
            versions=[group.versions[p] for p in members],
            outcomes=outcomes,
            rows=taken,
        )
        rows.add_chunk(chunk, {id(task): task for task in known}.values(), variant.sketch)
        return taken

    def _tasks(self, prefixes: Sequence[_Prefix], extents: NDArray[np.int64]) -> list[Task | None]:
        """Tasks of rows by what stands before their steps (and their extents, if need be)."""
        same = all(prefix is prefixes[0] for prefix in prefixes)
        if same and (extents == extents[0]).all():
            return [self._task(prefixes[0], tuple(extents[0].tolist()))] * len(prefixes)
        return [
            self._task(prefix, tuple(row))
            for prefix, row in zip(prefixes, extents.tolist(), strict=True)
        ]

    def _task(self, prefix: _Prefix, extents: tuple[int, ...]) -> Task | None:
        task = prefix.tasks.get(extents)
        if task is None:
            try:
                task = self._reader.task(prefix.items, extents)
            except BadLine:
                return None
            prefix.tasks[extents] = task
        return task


class _Decided(NamedTuple):
    """Decisions of some lines of a group.

    ``members`` are their places in the group; ``small`` marks rows within 64 bits.
    """

    members: NDArray[np.intp]
    matrix: NDArray[np.int64]
    small: NDArray[np.bool_]
    extents: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[_Decided]) -> _Decided:
        """Put parts one after the other."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))


class _Template:
    """Steps with the same bytes between their digits; variants differ in fixed numbers."""

    def __init__(self, pattern: RunsPattern) -> None:
        self.pattern = pattern
        self._variants: list[_Variant] = []

    @classmethod
    def of(cls, steps: bytes) -> _Template | None:
        """Make the template of steps; ``None`` where their text is not plain enough."""
        if b"\\" in steps:
            return None
        try:
            parsed = orjson.loads(b"[" + steps + b"]")
        except orjson.JSONDecodeError:
            return None
        # What is stored is the text without spaces: it must be the canonical one.
        if canonical_json(parsed) != b"[" + steps.translate(None, b" ") + b"]":
            return None
        return cls(RunsPattern(steps))

    def variant(
        self, steps: bytes, values: NDArray[np.int64], reader: AnsorReader
    ) -> _Variant | None:
        """The variant that steps with these numbers belong to; ``None`` where there is none."""
        for variant in self._variants:
            if (values[variant.fixed] == variant.fixed_values).all():
                return variant
        if len(self._variants) >= _MANY_VARIANTS:
            return None
        made = _Variant.of(steps, values, reader)
        if made is not None:
            self._variants.append(made)
        return made


class _Variant:
    """How numbers become decisions, for steps that agree in all other numbers."""

    def __init__(self, reader: StepReader, sketch: Sketch, values: NDArray[np.int64]) -> None:
        self.sketch = sketch
        self._width = len(reader.decisions)
        told = [(at, part) for at, part in enumerate(reader.decisions) if isinstance(part, Run)]
        self._taken = np.array([at for at, _ in told], dtype=np.intp)
        self._columns = np.array([part.column for _, part in told], dtype=np.intp)
        self._shifts = np.array([part.shift for _, part in told], dtype=np.int64)
        self._constants = [
            (at, part) for at, part in enumerate(reader.decisions) if not isinstance(part, Run)
        ]
        self._splits = reader.splits
        self._extents = reader.extents
        free = {part.column for part in reader.decisions if isinstance(part, Run)}
        for _, extent, lengths in reader.splits:
            free |= {part.column for part in (extent, *lengths) if isinstance(part, Run)}
        self.fixed = np.array([c for c in range(len(values)) if c not in free], dtype=np.intp)
        self.fixed_values = values[self.fixed]

    @classmethod
    def of(cls, steps: bytes, values: NDArray[np.int64], reader: AnsorReader) -> _Variant | None:
        """Follow the numbers of steps to their decisions; ``None`` where that is not linear."""
        try:
            traced = StepReader()
            traced.read(_Tracer(values).trace(orjson.loads(b"[" + steps + b"]")))
            plain = StepReader()
            plain.read(orjson.loads(b"[" + steps + b"]"))
        except (BadStep, _NotPlainError):
            return None
        if not traced.linear or list(traced.decisions) != list(plain.decisions):
            return None
        variant = cls(traced, reader.sketch(plain), values)
        decided = variant.decide(values[None, :], np.zeros(1, dtype=np.intp))
        if not decided.small[0] or decided.matrix[0].tolist() != plain.decisions:
            return None
        return variant

    def matches(self, values: NDArray[np.int64], rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the rows that have this variant's fixed numbers."""
        same = (values[:, self.fixed] == self.fixed_values).all(axis=1)
        found: NDArray[np.intp] = rows[same[rows]]
        return found

    def decide(self, values: NDArray[np.int64], members: NDArray[np.intp]) -> _Decided:
        """Decisions of rows of numbers, which stand at ``members`` of their group."""
        count = len(values)
        matrix = np.empty((count, self._width), dtype=np.int64)
        matrix[:, self._taken] = values[:, self._columns] + self._shifts
        for at, part in self._constants:
            matrix[:, at] = part
        small = np.ones(count, dtype=np.bool_)
        for at, extent, lengths in self._splits:
            product = np.ones(count, dtype=np.int64)
            size = np.ones(count, dtype=np.float64)
            for length in lengths:
                factor = _column(values, length)
                product *= factor
                size *= np.abs(factor)
            whole = _column(values, extent)
            small &= size < _PRODUCT_LIMIT
            known = (whole > 0) & (product > 0)
            matrix[:, at] = np.where(known, -(-whole // np.where(known, product, 1)), 0)
        extents = np.empty((count, len(self._extents)), dtype=np.int64)
        for at, extent in enumerate(self._extents):
            extents[:, at] = _column(values, extent)
        return _Decided(members, matrix, small, extents)


def _column(values: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    if isinstance(number, Run):
        return values[:, number.column] + number.shift
    return np.full(len(values), number, dtype=np.int64)


class _NotPlainError(Exception):
    """A step holds what is no integer, word or list of these."""


class _Tracer:
    """Replaces the numbers of steps by ones that know their run of digits."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self._values = values
        self._next = 0

    def trace(self, steps: Any) -> Any:
        """Give the steps again, with numbers that know where they come from."""
        traced = self._trace(steps)
        if self._next != len(self._values):
            raise _NotPlainError
        return traced

    def _run(self, value: int) -> Run:
        if self._next >= len(self._values) or int(self._values[self._next]) != value:
            raise _NotPlainError
        self._next += 1
        return Run(value, self._next - 1)

    def _trace(self, item: Any) -> Any:
        if type(item) is int:
            return self._run(item)
        if isinstance(item, list):
            return [self._trace(part) for part in item]
        if isinstance(item, str):
            return self._word(item)
        if item is None:
            return None
        raise _NotPlainError

    def _word(self, word: str) -> Any:
        found = re.findall(r"[0-9]+", word)
        runs = []
        for digits in found:
            # A minus inside a word is no sign, but the pattern takes it for one.
            negative = self._next < len(self._values) and self._values[self._next] < 0
            runs.append(self._run(-int(digits) if negative else int(digits)))
        value = word.rpartition("$")[2]
        if runs and value == found[-1] and "$" in word and runs[-1] >= 0:
            pragma = PragmaText(word)
            pragma.run = runs[-1]
            return pragma
        return word
