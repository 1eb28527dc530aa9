"""The interface of a log format: the role ``format``.

A format is a subclass of ``LineFormat`` (one record per line) or ``DocumentFormat`` (one document
per file). It says how its files are recognised and read, and what else is known of its records. All
other attributes and methods have neutral defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import DatasetError
from toolkit.logs.files.places import Place
from toolkit.logs.rows.base import Reading
from toolkit.logs.rows.results import BlockResult
from toolkit.logs.rows.rows import Rows
from toolkit.records import Sketch, Task

ANY_FORMAT: frozenset[str] | None = None
"""Value of ``LogFormat.writes``: records of every format can be written."""

FAILURE_S = 1e10
"""The cost that Ansor and MetaSchedule write for a failure."""

Row = Mapping[str, Any]
"""A record as a mapping of ``toolkit.schema.RECORDS``."""


@dataclass(frozen=True)
class Selection:
    """Records to write, with their tasks and sketches by id.

    ``rows`` can be iterated several times. ``space_sizes`` has the number of candidates of a task's
    whole space, if the log stated it. ``labels`` has the labels of each source, by its id.
    """

    rows: Iterable[Row]
    tasks: Mapping[str, Task]
    sketches: Mapping[str, Sketch]
    space_sizes: Mapping[str, int]
    labels: Mapping[str, Mapping[str, str]]

    def lines(self, line: Callable[[Row, Task], bytes]) -> bytes:
        return b"".join(line(row, self.tasks[row["task_id"]]) + b"\n" for row in self.rows)


def tvm_result(row: Row, failure_s: float) -> list[Any]:
    """Costs, error number, elapsed time and time stamp, as AutoTVM and Ansor write them."""
    error, stamp = row["error_number"], row["timestamp"] or 0.0
    if error is None:
        error = 0 if row["state"] == "ok" else 8
    # Whole numbers without a point, as TVM writes them (if JSON readers can hold the integer).
    whole = stamp.is_integer() and abs(stamp) < 2**53
    costs = row["run_times_s"] or [failure_s]
    return [costs, error, row["elapsed_s"] or 0.0, int(stamp) if whole else stamp]


class Beside:
    """Content of the files beside a log; by default there are none.

    ``machine`` is the name of the measured machine, and ``labels`` are labels of the source, if
    such a file gives them.
    """

    machine: str | None = None
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def portable(self) -> bool:
        """Whether another process can read blocks of the source (``description``)."""
        return True

    @property
    def note(self) -> str | None:
        """What is missing beside the records, for the report; ``None``: nothing."""
        return None

    @property
    def context(self) -> str:
        """What the records depend on: when it changes, the source is read again."""
        return ""

    def description(self) -> Any:
        """JSON values from which ``LineFormat.reopened`` makes this object in another process."""
        return None


class LogFormat:
    """A format of tuning logs.

    Attributes
    ----------
    name
        Its name in datasets (``Task.format``) and on the command line.
    extractor
        The best feature extractor without TVM; ``None``: the first that supports a task.
    mutation_weights
        Which fixed weights of mutation rules apply: those of ``ansor`` or ``metaschedule``.
    bare_workloads
        Whether tasks of the same workload without arguments may compute different shapes, so that
        only their extents differ.
    number_in_space
        Regular expression, searched in a schedule; its group is the candidate's number in its
        space. Empty if candidates have no number.
    writes
        Formats whose records it can write; none by default.
    repeats
        Whether a written log can hold several measurements of a candidate.
    companion
        Name of the format of the files beside its logs that belong to them.
    """

    name: ClassVar[str] = ""
    extractor: ClassVar[str | None] = None
    mutation_weights: ClassVar[str] = "metaschedule"
    bare_workloads: ClassVar[bool] = False
    number_in_space: ClassVar[str] = ""
    writes: ClassVar[frozenset[str] | None] = frozenset()
    repeats: ClassVar[bool] = True
    companion: ClassVar[str] = ""

    def is_whole_space(
        self, sketch: Sketch, decisions: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> bool:
        """Whether these distinct candidates of a task are its whole space.

        ``decisions`` has one row per candidate; ``numbers`` are their ``number_in_space``, or -1.
        """
        return False

    def beside(self, place: Place, companions: Sequence[Place]) -> Beside:
        """Read the files beside a source; ``companions`` are all files of the companion format."""
        return Beside()

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """Return the files of an export with their content."""
        raise DatasetError(f"the format {self.name} cannot be written", where=out)


class LineReading(Protocol):
    """Reads the lines of one source."""

    def interpret(self, entry: Any, index: int, line: bytes) -> Reading:
        """Interpret a line (decoded, and its bytes); raise ``BadLine`` if it is no record.

        ``index`` counts the source's earlier lines that are neither blank nor comments.
        """
        ...


class BlockReading(Protocol):
    """Reads many lines at once."""

    def read(self, lines: Sequence[bytes], number: int, rows: Rows) -> Sequence[int]:
        """Add rows for the lines that it understands; return the indices of all other lines.

        ``number`` is the number of lines of the source before these.
        """
        ...


class LineFormat(LogFormat):
    """A format with one JSON value per line.

    Attributes
    ----------
    learns
        Whether a reader that has read one source reads the next one of the same machine faster.
    begins
        How a line begins, which may be cut off; ``None``: a whole line is needed to recognise it.
    """

    learns: ClassVar[bool] = False
    begins: ClassVar[re.Pattern[bytes] | None] = None

    def accepts(self, entry: Any) -> bool:
        """Whether a decoded line is of this format, valid or not."""
        raise NotImplementedError

    def recognises(self, line: bytes, entry: Any) -> bool:
        """Whether a file with this line is of this format; ``entry`` is ``None`` if not JSON."""
        if self.begins is not None:
            return self.begins.match(line) is not None
        return entry is not None and self.accepts(entry)

    def reader(self, machine: str | None, beside: Any = None) -> LineReading:
        """Return a reader of one source."""
        raise NotImplementedError

    def together(self, reader: Any) -> BlockReading | None:
        """Return an object that reads many lines at once with ``reader``, or ``None``."""
        return None

    def space_sizes(self, reader: Any) -> Mapping[str, int]:
        """Number of candidates of the whole space by task id, if the log states it."""
        return {}

    def reopened(self, description: Any) -> Beside:
        """Make a source's ``Beside`` again in another process, from its ``description``."""
        return Beside()


class DocumentFormat(LogFormat):
    """A format with one document per file, read as a whole."""

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins with ``head`` is of this format."""
        raise NotImplementedError

    def read(self, data: bytes, name: str, machine: str | None, beside: Any = None) -> BlockResult:
        """Read a document; ``name`` is the workload's name if the document does not give it.

        ``beside`` is the result of the method ``beside``. Raises ``BadLine`` if it is not a
        document of this format.
        """
        raise NotImplementedError
