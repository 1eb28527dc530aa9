"""AutoTVM as a format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.formats.autotvm.reader import FORMAT, AutoTVMReader
from toolkit.logs.rows.format import LineFormat
from toolkit.logs.rows.written import Row, Selection, lines, tvm_result
from toolkit.records import Sketch, Task

FAILURE_S = 1e9


class AutoTVM(LineFormat):
    """AutoTVM 0.1 and 0.2."""

    name = FORMAT
    extractor = "knobs"
    number_in_space = r'"index":(\d+)'
    writes = frozenset({FORMAT})

    def accepts(self, entry: Any) -> bool:
        """Whether it has an input and a configuration (0.2), or a flat input (0.1)."""
        if not isinstance(entry, dict):
            return False
        if "input" in entry and "config" in entry:
            return True
        inputs = entry.get("i")
        return (
            isinstance(inputs, list)
            and "r" in entry
            and not (inputs and isinstance(inputs[0], list))
        )

    def reader(self, machine: str | None, beside: Any = None) -> AutoTVMReader:
        """Return a reader of one source."""
        del beside
        return AutoTVMReader(machine)

    def is_whole_space(
        self, sketch: Sketch, decisions: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> bool:
        """AutoTVM numbers its configurations: there must be no gap and all combinations."""
        if not np.array_equal(np.sort(numbers), np.arange(len(numbers))):
            return False
        product = 1
        for knob in sketch.knobs:
            product *= len(np.unique(decisions[:, knob.free], axis=0))
        return product == len(numbers)

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """One file of AutoTVM 0.2 lines."""
        return lines(autotvm_line, selection, out)


def autotvm_line(row: Row, task: Task) -> bytes:
    """An AutoTVM 0.2 line (TVM ``autotvm/record.py``)."""
    inputs = orjson.loads(task.blob or "[]")
    return orjson.dumps(
        {
            "input": inputs,
            "config": orjson.Fragment(row["schedule"]),
            "result": tvm_result(row, FAILURE_S),
            "version": 0.2,
            "tvm_version": row["tvm_version"] or "unknown",
        }
    )
