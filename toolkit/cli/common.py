"""What every command shares: output, progress, and errors as exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

from toolkit.errors import ToolkitError
from toolkit.progress import Step

if (_columns := os.environ.get("COLUMNS", "")).isdigit() and int(_columns) < 40:
    del os.environ["COLUMNS"]  # In none nothing would be printed.

out = Console()
err = Console(stderr=True)

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOT_BETTER = 3
EXIT_INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
DatasetDir = Annotated[
    Path | None, typer.Option("--dataset", help="Dataset folder (default: tuning/dataset).")
]

Force = Annotated[bool, typer.Option("--force", help="Write over files that exist.")]

F = TypeVar("F", bound=Callable[..., Any])


def print_json(value: Any, *, indent: bool = True) -> None:
    """Write one JSON object and a newline to standard output (on one line without indent)."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    if indent:
        options |= orjson.OPT_INDENT_2
    sys.stdout.write(orjson.dumps(value, default=str, option=options).decode() + "\n")
    sys.stdout.flush()


def command(function: F) -> F:
    """Turn named errors into one line on standard error and exit code 1, never a traceback."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ToolkitError as error:
            err.print(f"[bold red]error[/]: {_escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(EXIT_ERROR) from None
        except KeyboardInterrupt:
            err.print("interrupted: what was finished is kept", highlight=False)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return run  # type: ignore[return-value]


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


class _BarStep:
    def __init__(self, bars: RichBars, task: Any) -> None:
        self._bars, self._task = bars, task

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
        fields: dict[str, Any] = {} if note is None else {"note": note}
        self._bars.update(self._task, advance=by, **fields)


class BarProgress:
    """Progress bars on standard error (plain lines where it is no terminal)."""

    def __init__(self) -> None:
        self._terminal = err.is_terminal

    @contextmanager
    def _open(self, label: str, total: float | None) -> Iterator[Step]:
        if not self._terminal:
            err.print(f"{label} ...", highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with RichBars(*columns, console=err, disable=not self._terminal) as bars:
            yield _BarStep(bars, bars.add_task(label, total=total, note=""))

    def step(self, label: str, total: float | None = None) -> Any:
        """Open a bar as a context manager."""
        return self._open(label, total)
