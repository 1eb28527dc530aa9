"""Parts that all commands share: options, JSON, progress, and errors as exit codes."""

from __future__ import annotations

import errno
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import orjson
import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichBars
from rich.text import Text
from typer import Option

from toolkit.cli.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED
from toolkit.cli.tables import err
from toolkit.cluster import Cluster
from toolkit.errors import ToolkitError, first_line
from toolkit.progress import Progress, Step, Values
from toolkit.records import SEED_MAX
from toolkit.results import plain
from toolkit.show import number, seconds
from toolkit.workspace import Workspace

if TYPE_CHECKING:
    from toolkit.datasets import Dataset

LINE_EVERY_S = 30.0
"""Without a terminal, a long step prints its progress at most this often."""

PROCESSES_MAX = 1024
THREADS_MAX = 4096
"""More than any machine has: a command with a larger number would start, and then hang."""


def folder_at(text: str) -> Path:
    """Return a folder by its path, or on an object store by its URL."""
    if "://" not in text:
        return Path(text)
    from toolkit.datasets import urls

    try:
        return urls.folder_at(text)
    except ToolkitError as error:
        raise typer.BadParameter(str(error)) from None


def outside_datasets(text: str) -> Path:
    """Return a path for results; it must not be inside a dataset's folder."""
    from toolkit.datasets.manifest import dataset_around

    path = Path(text)
    if (home := dataset_around(path)) is not None:
        raise typer.BadParameter(f"{text} is inside the dataset {home}: give another path")
    return path


FolderOption = partial(Option, parser=folder_at, metavar="FOLDER")
OutOption = partial(Option, "--out", parser=outside_datasets, metavar="PATH")

Json = Annotated[bool, Option("--json", help="Print one JSON object on standard output.")]
DatasetDir = Annotated[
    Path | None,
    FolderOption("--dataset", help="Dataset folder, or its URL (default: tuning/dataset)."),
]
Seed = Annotated[int, Option(min=0, max=SEED_MAX, help="Seed of all random draws.")]
Interval = Annotated[float, Option(min=0.1, help="With --follow: seconds between checks.")]
Force = Annotated[bool, Option("--force", help="Overwrite existing files.")]
Rows = Annotated[Path | None, Option("--out", help="File for all rows: .parquet, .csv or .json.")]
Tasks = Annotated[list[str] | None, Option(help="Task id, or its beginning; repeatable.")]
Machines = Annotated[list[str] | None, Option(help="Only what this machine measured; repeatable.")]
Models = Annotated[
    list[Path] | None,
    FolderOption(help="Model folder, or its URL; repeatable (default: tuning/models)."),
]
# Options of the commands that measure.
Target = Annotated[
    str | None,
    Option(help="TVM target (default: LLVM for this processor, with its features)."),
]
Cores = Annotated[
    str | None,
    Option(help="Pin measurements to processors, as in 1 or 2,3 (default: not pinned)."),
]
Threads = Annotated[
    int | None,
    Option(
        min=1,
        max=THREADS_MAX,
        help="Threads of the programs (default: the num-cores of --target, else all cores).",
    ),
]
Device = Annotated[
    str | None, Option(help="Where to measure: 'rpc HOST:PORT KEY' (default: this machine).")
]
Machine = Annotated[str | None, Option(help="Name of this machine in the logs (default: its CPU).")]
AnsorWorkloads = Annotated[
    list[Path] | None, Option(help="Python file that registers Ansor workloads; repeatable.")
]

ClusterPlace = Annotated[
    str | None,
    Option(
        "--cluster",
        metavar="ADDRESS",
        help="Use Dask workers instead of processes: a scheduler's (tcp://HOST:8786), or four on "
        "this machine (local:4).",
    ),
]

Peak = Annotated[
    list[str] | None,
    Option(
        metavar="[MACHINE=]GFLOPS",
        help="Peak GFLOP/s of a machine, to show each task's share of it. Name each of several "
        "machines, as in 'i7-3770=200'; repeatable.",
    ),
]

F = TypeVar("F", bound=Callable[..., Any])

_FULL = "free some space and run the same command again: finished work is kept"
_DENIED = "check the permissions, or give another path"
_FILE = "it is a file where a folder is needed: give another path"
CURES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: "give a path that can be written",
    errno.EEXIST: _FILE,
    errno.ENOTDIR: _FILE,
    errno.EISDIR: "it is a folder where a file is needed: give another path",
    errno.EMFILE: "allow more open files (ulimit -n), or use fewer --workers",
}
SEE_WHY = 'see why: toolkit query "SELECT reason, count(*) FROM rejected GROUP BY reason"'
"""Cure where no line of a log is a record."""


def opened_dataset(folder: Path | None) -> Dataset:
    """Open the given dataset, or the workspace's."""
    from toolkit.datasets import open_dataset

    return open_dataset(folder or Workspace().dataset)


def whole_numbers(text: str, told: str) -> list[int]:
    """Read numbers separated by commas; ``told`` says what the list holds, for the error."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of {told}") from None


def print_json(value: Any, *, indent: bool = True) -> None:
    """Write one JSON object and a newline to standard output (on one line without indent)."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    if indent:
        options |= orjson.OPT_INDENT_2
    # JSON is UTF-8, whatever the terminal's encoding is.
    sys.stdout.flush()
    sys.stdout.buffer.write(orjson.dumps(plain(value), default=str, option=options) + b"\n")
    sys.stdout.flush()


def answer(result: Any, json: bool, show: Callable[[Any], None]) -> None:
    """Print a result: as JSON, or for a person with ``show``."""
    if json:
        print_json(result)
    else:
        show(result)


@contextmanager
def workers_or_cluster(
    workers: int | None, place: str | None, progress: Progress
) -> Iterator[int | Cluster | None]:
    """Yield the number of workers, or the cluster at an address.

    Raises a usage error if both are given.
    """
    if place is None:
        yield workers
        return
    if workers is not None:
        raise typer.BadParameter(
            "leave out --workers and --threads: a cluster has its own number of workers",
            param_hint="--cluster",
        )
    with Cluster(place, progress) as cluster:
        yield cluster


def peaks(given: Sequence[str] | None) -> dict[str | None, float]:
    """Read ``Peak``: GFLOP/s by machine, ``None`` for a number without a name."""
    found: dict[str | None, float] = {}
    for text in given or ():
        name, _, rate = text.rpartition("=")
        try:
            found[name or None] = float(rate)
        except ValueError:
            found[name or None] = 0.0
        if not 0 < found[name or None] < math.inf:
            raise ToolkitError(
                f"--peak {text!r} is not a positive number of GFLOP/s",
                cure="give --peak 200, or --peak NAME=200",
            )
    return found


def with_exit_codes(function: F) -> F:
    """Print known errors as one line on standard error, with exit code 1 and no traceback."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BrokenPipeError:
            raise  # the reader of the pipe has closed it: typer ends quietly
        except Exception as error:
            known = error if isinstance(error, ToolkitError) else _foreign_error(error)
            if known is None:
                raise
            say_error(str(known))
            raise typer.Exit(EXIT_ERROR) from None
        except KeyboardInterrupt:
            err.print("interrupted: finished work is kept", highlight=False)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return run  # type: ignore[return-value]


def _foreign_error(error: Exception) -> ToolkitError | None:
    """Return an error of the system or a library with its cure; ``None``: a bug of the toolkit.

    It covers full and read-only disks, missing permissions, damaged Parquet files, and lack of
    memory.
    """
    said = first_line(error)
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, str) else None
        return ToolkitError(error.strerror or said, where=where, cure=CURES.get(error.errno or 0))
    if isinstance(error, MemoryError):
        return ToolkitError(f"out of memory: {said}", cure="use less data, or close programs")
    if type(error).__module__.partition(".")[0] in ("pyarrow", "polars"):
        return ToolkitError(
            f"a table cannot be read or written: {said}",
            cure="if a file of the dataset is damaged, ingest the logs again into another folder",
        )
    return None


def say_error(text: str) -> None:
    """Write one line on standard error."""
    with suppress(OSError):
        err.print(Text.assemble(("error", "bold red"), f": {text}"), soft_wrap=True)


class _BarStep:
    def __init__(self, bars: RichBars, task: Any) -> None:
        self._bars, self._task = bars, task

    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        fields: dict[str, Any] = {} if note is None else {"note": note}
        self._bars.update(self._task, advance=by, **fields)


class _LineStep:
    """Progress without a terminal: a line from time to time."""

    def __init__(self, label: str, total: float | None) -> None:
        self._label, self._total, self._done = label, total, 0.0
        self._began = self._said = time.monotonic()

    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        self._done += by
        now = time.monotonic()
        if now - self._said < LINE_EVERY_S:
            return
        self._said = now
        of = "" if self._total is None else f" of {number(self._total)}"
        parts = [f"{number(round(self._done, 1))}{of}", f"{seconds(now - self._began)} so far"]
        if self._total and 0 < self._done < self._total:
            left = (self._total - self._done) / self._done * (now - self._began)
            parts.append(f"about {seconds(left)} left")
        if note:
            parts.append(note)
        err.print(f"{self._label}: {', '.join(parts)}", highlight=False, soft_wrap=True)


class BarProgress:
    """Progress bars on standard error (plain lines if it is not a terminal)."""

    @contextmanager
    def step(self, label: str, total: float | None = None) -> Iterator[Step]:
        """Open a bar as a context manager."""
        if not err.is_terminal:
            err.print(f"{label} ...", highlight=False)
            yield _LineStep(label, total)
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with RichBars(*columns, console=err) as bars:
            yield _BarStep(bars, bars.add_task(label, total=total, note=""))

    def say(self, text: str) -> None:
        """Write a line."""
        err.print(text, highlight=False)
