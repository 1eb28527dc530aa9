"""Read many MetaSchedule records at a time.

A line is ``[workload,[[instructions,decisions],run times,target,arguments]]``. Most of its bytes
recur: the instructions up to ``EnterPostproc``, those after it, target and arguments. Each of these
pieces is parsed and made canonical once. Only decisions and run times are parsed for every line.
All lines with another layout are left to the reader of single lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import orjson

from toolkit.logs.formats.metaschedule.reader import MetaScheduleReader
from toolkit.logs.formats.metaschedule.trace import (
    FORMAT,
    Skeleton,
    check_instructions,
    read_skeleton,
)
from toolkit.logs.rows.base import BadLine, refuse_deep
from toolkit.logs.rows.columns import Candidates, Outcomes, Texts, Words
from toolkit.logs.rows.json_text import count_keys, refuse_repeated
from toolkit.logs.rows.rows import Rows, make_chunk
from toolkit.records import Task, canonical_json

_START, _MARK = b"[[[", b'["EnterPostproc"'
_DECISIONS, _TARGET = b"]],[[", b"],{"
_KEPT_PIECES = 20_000


class _Instructions(NamedTuple):
    """All instructions of a trace: canonical text, and for each task a hash object fed with it."""

    canonical: bytes
    hashes: dict[str, Any]


class _Head(NamedTuple):
    """Instructions up to ``EnterPostproc``, with the known instructions after them."""

    skeleton: Skeleton
    canonical: bytes
    tails: dict[bytes, _Instructions]


class _Record(NamedTuple):
    """One line, split into its parts."""

    place: int
    task: Task
    tvm_version: str | None
    instructions: _Instructions
    flat: tuple[int, ...]
    decisions: bytes
    costs: Any


class MetaScheduleBlocks:
    """Reads the lines of a block that have the usual layout, and leaves the others."""

    def __init__(self, reader: MetaScheduleReader) -> None:
        self._reader = reader
        self._heads: dict[bytes, _Head] = {}
        self._tasks: dict[bytes, dict[bytes, tuple[Task, str | None]]] = {}

    def read(self, lines: Sequence[bytes], number: int, rows: Rows) -> list[int]:
        """Read lines (the first is line ``number + 1``); return the indices of lines not read."""
        left: list[int] = []
        groups: dict[int, tuple[Skeleton, list[_Record]]] = {}
        last = b"\n"
        head: _Head | None = None
        for place, line in enumerate(lines):
            begin = line.find(_START)
            # The mark must follow: without it the instructions before it would continue.
            if head is None or not line.startswith(last + _MARK, begin):
                last = line[begin : line.find(_MARK)] if begin > 0 else b""
                head = self._head(last)
            record = self._record(place, line, begin, begin + len(last), head) if head else None
            if head and record:
                groups.setdefault(id(head.skeleton), (head.skeleton, []))[1].append(record)
            else:
                left.append(place)
        for skeleton, records in groups.values():
            left += self._add(skeleton, records, number, rows)
        left.sort()
        return left

    def _head(self, text: bytes) -> _Head | None:
        if len(text) <= len(_START) or not text.endswith(b","):
            return None
        head = self._heads.get(text)
        if head is None:
            try:
                instructions = _parsed(b"[" + text[len(_START) : -1] + b"]")
                canonical = canonical_json(instructions)
                skeleton = read_skeleton(instructions)
            except (orjson.JSONDecodeError, orjson.JSONEncodeError, BadLine):
                return None
            if len(self._heads) >= _KEPT_PIECES:
                self._heads.clear()
            head = self._heads[text] = _Head(skeleton, b"[" + canonical[:-1] + b",", {})
        return head

    def _record(
        self, place: int, line: bytes, begin: int, mark: int, head: _Head
    ) -> _Record | None:
        """Split a line whose first instructions are known."""
        target = line.rfind(_TARGET)
        cut = line.rfind(_DECISIONS, mark, target)
        if cut < 0:
            return None
        try:
            instructions = head.tails.get(line[mark:cut])
            if instructions is None:
                instructions = self._instructions(head, line[mark:cut])
            (decisions,), costs = orjson.loads(b"[[" + line[cut + 3 : target + 1] + b"]")
            flat = head.skeleton.decide(decisions)
            known = self._tasks.get(line[:begin], {}).get(line[target + 2 :])
            if known is None:
                known = self._task(line[:begin], line[target + 2 :])
            text = canonical_json(decisions)
        except (BadLine, ValueError, TypeError):  # of JSON, too
            return None
        return _Record(place, *known, instructions, flat, text, costs)

    def _instructions(self, head: _Head, text: bytes) -> _Instructions:
        """Parse the instructions from ``EnterPostproc`` on; raise ``BadLine``."""
        parsed = _parsed(b"[" + text + b"]]")
        check_instructions(parsed)
        if len(head.tails) >= _KEPT_PIECES:
            head.tails.clear()
        canonical = head.canonical + canonical_json(parsed)[1:] + b","
        found = head.tails[text] = _Instructions(canonical, {})
        return found

    def _task(self, begin: bytes, end: bytes) -> tuple[Task, str | None]:
        """Parse workload index, target and arguments; raise ``ValueError`` or ``BadLine``."""
        whole = b"[[" + end
        ((target, arguments),) = orjson.loads(whole)
        refuse_deep(whole)
        refuse_repeated(whole, count_keys(target))
        (which,) = orjson.loads(begin.removesuffix(b",") + b"]")
        if type(which) is not int or not begin.endswith(b","):
            raise ValueError("not a workload index")
        known = self._tasks.setdefault(begin, {})[end] = self._reader.task(which, target, arguments)
        return known

    def _add(
        self, skeleton: Skeleton, records: list[_Record], number: int, rows: Rows
    ) -> list[int]:
        """Add records of one sketch; return the indices of lines with invalid costs."""
        outcomes, good = Outcomes.of_costs([record.costs for record in records])
        left = [record.place for record, fine in zip(records, good, strict=True) if not fine]
        records = [record for record, fine in zip(records, good, strict=True) if fine]
        if not records:
            return left
        schedules = [record.instructions.canonical + record.decisions + b"]" for record in records]
        hashes = []
        for record, schedule in zip(records, schedules, strict=True):
            canonical, kept = record.instructions
            task_id = record.task.task_id
            if task_id not in kept:
                kept[task_id] = blake2b(task_id.encode() + canonical, digest_size=8)
            digest = kept[task_id].copy()
            digest.update(schedule[len(canonical) :])
            hashes.append(digest)
        count, width = len(records), skeleton.sketch.width
        matrix = np.array([record.flat for record in records], dtype=np.int64)
        same = np.zeros(count, dtype=np.int64)
        tasks = Words.of([record.task.task_id for record in records])
        candidates = Candidates(tasks, np.full(count, width))
        candidates.put(np.arange(count), skeleton.sketch, matrix.reshape(count, width))
        chunk = make_chunk(
            format=Words([FORMAT], same),
            lines=np.array([record.place for record in records], dtype=np.int64) + number + 1,
            candidates=candidates,
            schedules=Texts.of(schedules),
            versions=Words(["1"], same),
            tvm_versions=[record.tvm_version for record in records],
            outcomes=outcomes.some(good),
            hashes=hashes,
        )
        rows.add_chunk(chunk, {id(r.task): r.task for r in records}.values(), [skeleton.sketch])
        return left


def _parsed(text: bytes) -> Any:
    """Parse instructions, which usually hold no objects; raise ``BadLine``."""
    parsed = orjson.loads(text)
    refuse_deep(text)
    refuse_repeated(text)
    return parsed
