"""Ansor as a format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from toolkit.logs.formats.ansor.blocks import AnsorBlocks
from toolkit.logs.formats.ansor.reader import FORMAT, AnsorReader
from toolkit.logs.rows.format import LineFormat
from toolkit.logs.rows.written import FAILURE_S, Row, Selection, lines, tvm_result
from toolkit.records import Task


class Ansor(LineFormat):
    """Ansor v0.2 to v0.6."""

    name = FORMAT
    extractor = "primitives"
    mutation_weights = "ansor"
    bare_workloads = True
    writes = frozenset({FORMAT})
    learns = True

    def accepts(self, entry: Any) -> bool:
        """Whether its input begins with a task's items."""
        if not isinstance(entry, dict) or ("input" in entry and "config" in entry):
            return False
        inputs = entry.get("i")
        return (
            isinstance(inputs, list)
            and "r" in entry
            and bool(inputs)
            and isinstance(inputs[0], list)
        )

    def reader(self, machine: str | None, beside: Any = None) -> AnsorReader:
        """Return a reader of one source."""
        del beside
        return AnsorReader(machine)

    def together(self, reader: AnsorReader) -> AnsorBlocks:
        """Steps that agree in all bytes but some numbers are read together."""
        return AnsorBlocks(reader)

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """One file of Ansor v0.6 lines."""
        return lines(ansor_line, selection, out)


def ansor_line(row: Row, task: Task) -> bytes:
    """An Ansor v0.6 line (TVM ``auto_scheduler/measure_record.cc``).

    Tasks without hardware parameters were never written after v0.2: their lines stay v0.2, for
    which TVM fills in its defaults.
    """
    items = orjson.loads(task.blob or "[]")
    bare = len(items) < 3 or not items[2]
    return orjson.dumps(
        {
            "i": [items[:2] if bare else items, orjson.Fragment(row["schedule"])],
            "r": tvm_result(row, FAILURE_S),
            "v": "v0.2" if bare else "v0.6",
        }
    )
