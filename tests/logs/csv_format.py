"""A format that the toolkit does not have: a table of parameters and a column ``time_s``."""

from __future__ import annotations

import csv
from typing import Any

from toolkit.logs.rows.base import BadLine, Reading, word_code
from toolkit.logs.rows.format import DocumentFormat
from toolkit.logs.rows.identity import KnobList, make_sketch, make_task
from toolkit.logs.rows.results import BlockResult, Rejected
from toolkit.logs.rows.rows import Rows
from toolkit.records import TrialState, canonical_json


class Csv(DocumentFormat):
    """A table with a row a configuration; an empty time is a failure."""

    name = "csv"

    def recognises(self, head: bytes) -> bool:
        """Whether its first line ends with the column of times."""
        return head.split(b"\n", 1)[0].rstrip().endswith(b",time_s")

    def read(self, data: bytes, name: str, machine: str | None, beside: Any = None) -> BlockResult:
        """Read all rows."""
        text = data.decode("utf-8", errors="replace")
        head, *lines = list(csv.reader(text.splitlines()))
        task = make_task(
            format=self.name,
            workload=name,
            arguments=None,
            target="",
            target_kind="unknown",
            machine=machine,
        )
        knobs = KnobList()
        for parameter in head[:-1]:
            knobs.add(parameter, "categorical")
        sketch = make_sketch(self.name, head, knobs.knobs)
        rows, rejected = Rows(), []
        for number, line in enumerate(lines, start=1):
            try:
                rows.add(_reading(task, sketch, head, line), number)
            except (BadLine, ValueError) as bad:
                rejected.append(Rejected(number, 0, str(bad), ",".join(line).encode()))
        return BlockResult(
            rows=rows.table(),
            lines=len(lines),
            counted=len(lines),
            rejected=rejected,
            tasks=list(rows.tasks.values()),
            sketches=list(rows.sketches.values()),
        )


def _reading(task, sketch, head, line) -> Reading:
    if len(line) != len(head):
        raise BadLine("a row with another number of columns")
    *values, time_s = line
    return Reading(
        task=task,
        sketch=sketch,
        decisions=tuple(word_code(value) for value in values),
        schedule=canonical_json(dict(zip(head, values, strict=False))).decode(),
        format_version="1",
        tvm_version=None,
        state=TrialState.OK if time_s else TrialState.UNKNOWN,
        error_number=None,
        run_times_s=(float(time_s),) if time_s else (),
        elapsed_s=None,
        timestamp=None,
    )


class Greedy(Csv):
    """Claims every file."""

    name = "a"

    def recognises(self, head: bytes) -> bool:
        """Always."""
        return True
