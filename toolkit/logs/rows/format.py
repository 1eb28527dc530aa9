"""What a log format is: the contract of the role ``format``.

A format is a subclass of ``LineFormat`` (a record a line) or ``DocumentFormat`` (one document a
file). It says how its files are recognised and read, and what else is known of its records.
Whatever it does not say has a default that claims nothing.
"""

from __future__ import annotations

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
"""Records of every format can be written in this one (``LogFormat.writes``)."""

FAILURE_S = 1e10
"""The cost that Ansor and MetaSchedule write for a failure."""

Row = Mapping[str, Any]
"""A record as a mapping of ``toolkit.schema.RECORDS``."""


@dataclass(frozen=True)
class Selection:
    """Records to be written, with their tasks and sketches by id.

    ``rows`` may be walked more than once. ``space_sizes`` has the number of candidates of a task's
    whole space, where the log stated it. ``labels`` are those of each source, by its id.
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
    # Integers as TVM writes them, without a point (as far as JSON readers have integers).
    whole = stamp.is_integer() and abs(stamp) < 2**53
    costs = row["run_times_s"] or [failure_s]
    return [costs, error, row["elapsed_s"] or 0.0, int(stamp) if whole else stamp]


class Beside:
    """What stands beside the lines of a source; nothing, as a rule.

    ``machine`` is the name of the machine that was measured, where a file beside the log tells it;
    ``labels`` are labels of the source that it tells.
    """

    machine: str | None = None
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def portable(self) -> bool:
        """Whether another process can read blocks of the source (``description``)."""
        return True

    @property
    def note(self) -> str | None:
        """What is missing beside the records, for whoever reads the report; ``None``: nothing."""
        return None

    @property
    def context(self) -> str:
        """What the records depend on: when it changes, the source is read anew."""
        return ""

    def description(self) -> Any:
        """Values of JSON from which ``LineFormat.reopened`` makes this in another process."""
        return None


class LogFormat:
    """A format of tuning logs.

    Attributes
    ----------
    name
        Its name in datasets (``Task.format``) and on the command line.
    extractor
        The feature extractor that serves it best without TVM; ``None``: the first that supports
        a task.
    mutation_weights
        Whose fixed weights of mutation rules stand for it: ``ansor`` or ``metaschedule``.
    bare_workloads
        Whether tasks of the same workload and no arguments may compute different shapes, so that
        only their extents differ.
    number_in_space
        Regular expression whose group is a candidate's number in its space, searched in its
        schedule; empty where candidates have none.
    writes
        Formats whose records it can write; none by default.
    repeats
        Whether what it writes can hold several measurements of a candidate.
    companion
        Name of the format of files that stand beside its records and are part of them.
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
        """Whether these distinct candidates of a task are all that its space has.

        ``decisions`` has a row a candidate; ``numbers`` are their ``number_in_space``, or -1.
        """
        return False

    def beside(self, place: Place, companions: Sequence[Place]) -> Beside:
        """Read what stands beside a source; ``companions`` are files of that format, anywhere."""
        return Beside()

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """Give the files of an export with their content."""
        raise DatasetError(f"{self.name} cannot be written", where=out)


class LineReading(Protocol):
    """Reads the lines of one source."""

    def interpret(self, entry: Any, index: int, line: bytes) -> Reading:
        """Interpret a line, decoded and as it is; raise ``BadLine`` where it is no record.

        ``index`` counts the source's lines that are neither blank nor comment.
        """
        ...


class BlockReading(Protocol):
    """Reads many lines at once."""

    def read(self, lines: Sequence[bytes], number: int, rows: Rows) -> Sequence[int]:
        """Add rows of the lines that it understands; return the places of all others.

        ``number`` is the number of lines of the source before them.
        """
        ...


class LineFormat(LogFormat):
    """A format with a JSON value a line.

    Attributes
    ----------
    learns
        Whether a reader of one source reads the next one of the same machine faster.
    """

    learns: ClassVar[bool] = False

    def accepts(self, entry: Any) -> bool:
        """Whether a decoded line is one of this format, good or not."""
        raise NotImplementedError

    def recognises(self, line: bytes, entry: Any) -> bool:
        """Whether a file with this line is of this format; ``entry`` is ``None`` for no JSON."""
        return entry is not None and self.accepts(entry)

    def reader(self, machine: str | None, beside: Any = None) -> LineReading:
        """Return a reader of one source."""
        raise NotImplementedError

    def together(self, reader: Any) -> BlockReading | None:
        """Return what reads many lines at once with ``reader``'s help, if anything does."""
        return None

    def space_sizes(self, reader: Any) -> Mapping[str, int]:
        """Number of candidates of the whole space by task id, as far as the log states it."""
        return {}

    def reopened(self, description: Any) -> Beside:
        """Make what stands beside a source anew, in another process."""
        return Beside()


class DocumentFormat(LogFormat):
    """A format with one document a file, read as a whole."""

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins so is of this format."""
        raise NotImplementedError

    def read(self, data: bytes, name: str, machine: str | None, beside: Any = None) -> BlockResult:
        """Read a document; ``name`` stands for the workload where the document tells none.

        ``beside`` is what the method of that name gave. Raises ``BadLine`` where it is not the
        document that it seemed to be.
        """
        raise NotImplementedError
