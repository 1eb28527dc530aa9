"""What every command shares: output, progress, and errors as exit codes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichBars
from rich.text import Text

from toolkit.cli.foreign import foreign_error
from toolkit.errors import ToolkitError
from toolkit.progress import Step
from toolkit.results import Result
from toolkit.show import number, seconds
from toolkit.toml_file import SEED_MAX

if (_columns := os.environ.get("COLUMNS", "")).isdigit() and int(_columns) < 40:
    del os.environ["COLUMNS"]  # In none nothing would be printed.

# No text is taken for markup: names come from logs and files.
out = Console(markup=False)
err = Console(stderr=True, markup=False)

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOT_BETTER = 3
EXIT_UNDECIDED = 4
EXIT_INTERRUPTED = 130

LINE_EVERY_S = 30.0
"""Where no terminal is a long step says no more often how far it is."""

PROCESSES_MAX = 1024
THREADS_MAX = 4096
"""More than any machine has: a command that is asked for more would start, and never speak."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
DatasetDir = Annotated[
    Path | None, typer.Option("--dataset", help="Dataset folder (default: tuning/dataset).")
]

Seed = Annotated[int, typer.Option(min=0, max=SEED_MAX, help="Of everything that is drawn.")]
Force = Annotated[bool, typer.Option("--force", help="Write over files that exist.")]

F = TypeVar("F", bound=Callable[..., Any])


def print_warnings(warnings: Iterable[str]) -> None:
    """Write each warning on one line of standard error."""
    for warning in warnings:
        err.print(Text.assemble(("warning", "yellow"), f": {warning}"), soft_wrap=True)


def print_json(value: Any, *, indent: bool = True) -> None:
    """Write one JSON object and a newline to standard output (on one line without indent)."""
    if isinstance(value, Result):
        value = value.to_json()
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    if indent:
        options |= orjson.OPT_INDENT_2
    # JSON is UTF-8, whatever the terminal's encoding is.
    sys.stdout.flush()
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=options) + b"\n")
    sys.stdout.flush()


def command(function: F) -> F:
    """Turn named errors into one line on standard error and exit code 1, never a traceback."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ToolkitError as error:
            say_error(str(error))
            raise typer.Exit(EXIT_ERROR) from None
        except BrokenPipeError:
            raise  # whoever read has enough: typer ends quietly
        except Exception as error:
            told = foreign_error(error)
            if told is None:
                raise
            say_error(str(told))
            raise typer.Exit(EXIT_ERROR) from None
        except KeyboardInterrupt:
            err.print("interrupted: what was finished is kept", highlight=False)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return run  # type: ignore[return-value]


def say_error(text: str) -> None:
    """Write one line on standard error."""
    with suppress(OSError):
        err.print(Text.assemble(("error", "bold red"), f": {text}"), soft_wrap=True)


class _BarStep:
    def __init__(self, bars: RichBars, task: Any) -> None:
        self._bars, self._task = bars, task

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
        fields: dict[str, Any] = {} if note is None else {"note": note}
        self._bars.update(self._task, advance=by, **fields)


class _LineStep:
    """Says where no terminal is how far it is: a line now and then."""

    def __init__(self, label: str, total: float | None) -> None:
        self._label, self._total, self._done = label, total, 0.0
        self._began = self._said = time.monotonic()

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
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
        err.print(f"{self._label}: {', '.join(parts)}", highlight=False, markup=False)


class BarProgress:
    """Progress bars on standard error (plain lines where it is no terminal)."""

    def __init__(self) -> None:
        self._terminal = err.is_terminal

    @contextmanager
    def _open(self, label: str, total: float | None) -> Iterator[Step]:
        if not self._terminal:
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

    def step(self, label: str, total: float | None = None) -> Any:
        """Open a bar as a context manager."""
        return self._open(label, total)
