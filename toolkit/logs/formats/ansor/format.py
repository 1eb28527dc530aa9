"""Ansor as a format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from toolkit.logs.formats.ansor.blocks import AnsorBlocks
from toolkit.logs.formats.ansor.reader import FORMAT, AnsorReader
from toolkit.logs.rows.format import FAILURE_S, LineFormat, Row, Selection, tvm_result
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
        nested = isinstance(inputs, list) and inputs and isinstance(inputs[0], list)
        return "r" in entry and bool(nested)

    def reader(self, machine: str | None, beside: Any = None) -> AnsorReader:
        """Return a reader of one source."""
        return AnsorReader(machine)

    def together(self, reader: AnsorReader) -> AnsorBlocks:
        """Steps that agree in all bytes but some numbers are read together."""
        return AnsorBlocks(reader)

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """One file of Ansor v0.6 lines."""
        return {out: selection.lines(ansor_line)}


def ansor_line(row: Row, task: Task) -> bytes:
    """An Ansor v0.6 line (TVM ``auto_scheduler/measure_record.cc``).

    Tasks without hardware parameters were never written after v0.2: their lines stay v0.2, for
    which TVM fills in its defaults.
    """
    items = orjson.loads(task.blob or "[]")
    bare = len(items) < 3 or not items[2]
    inputs = [items[:2] if bare else items, orjson.Fragment(row["schedule"])]
    version = "v0.2" if bare else "v0.6"
    return orjson.dumps({"i": inputs, "r": tvm_result(row, FAILURE_S), "v": version})
