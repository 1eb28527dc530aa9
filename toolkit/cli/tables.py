"""Prints rows and figures: tables from short descriptions, lines, intervals."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolkit import show

if (_columns := os.environ.get("COLUMNS", "")).isdigit() and int(_columns) < 40:
    del os.environ["COLUMNS"]  # With so few columns nothing would be printed.

# No text is read as markup, since names come from logs and files.
out = Console(markup=False)
err = Console(stderr=True, markup=False)

NARROW = 100
"""Width of a terminal below which tables leave out columns and shorten words."""

Columns = Mapping[str, Callable[[Any], Any]]
"""Columns of a table: each heading, and the function that writes a row's cell.

A heading that begins with ``>`` belongs to numbers, which are aligned to the right.
"""


def print_table(
    columns: Columns,
    rows: Iterable[Any],
    *,
    elastic: int | None = None,
    shorten: Callable[[str, int], str] = show.cut,
    **style: Any,
) -> None:
    """Print a table on standard output; ``style`` is passed to rich (a title, no box, ...).

    The column with the index ``elastic`` is shortened to fit the terminal. No other column wraps.
    """
    cells = [[str(write(row)) for write in columns.values()] for row in rows]
    heads = [heading.lstrip(">") for heading in columns]
    if elastic is not None:
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        room = out.width - sum(widths) + widths[elastic] - 2 * (len(widths) - 1)
        for row in cells:
            row[elastic] = shorten(row[elastic], max(room, 8))
    table = Table(**style)
    for heading, head in zip(columns, heads, strict=True):
        side = "right" if heading.startswith(">") else "left"
        table.add_column(head, justify=side, no_wrap=elastic is not None)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*map(Text, row))
    out.print(table)


def print_plain(
    columns: Columns,
    rows: Iterable[Any],
    title: str = "",
    elastic: int = 0,
    shorten: Callable[[str, int], str] = show.cut,
) -> None:
    """Print a table without lines that does not wrap."""
    if title:
        say(f"\n{title}", "bold")
    print_table(columns, rows, elastic=elastic, shorten=shorten, box=None, pad_edge=False)


def say(text: str, style: str | None = None) -> None:
    """Write a line on standard output."""
    out.print(text, style=style, highlight=False)


def note(text: str, style: str | None = None) -> None:
    """Write a line on standard error; the terminal wraps a coloured one."""
    err.print(text, style=style, highlight=False, soft_wrap=style is not None)


def print_warnings(warnings: Iterable[str]) -> None:
    """Write each warning on one line of standard error."""
    for warning in warnings:
        err.print(Text.assemble(("warning", "yellow"), f": {warning}"), soft_wrap=True)


def counted(key: Any) -> Callable[[Any], str]:
    """Return a column of counts, with thousands separated."""
    return lambda row: f"{row[key]:,}"


def decimals(value: Any) -> str:
    """Return a number with three decimals, a text as it is, and nothing for unknown values."""
    if isinstance(value, float):
        return f"{value:.3f}" if math.isfinite(value) else ""
    return value if isinstance(value, str) else ""


def low_to_high(bounds: Sequence[Any] | None, form: str = ".3f") -> str:
    """Return an interval as ``low to high``; nothing for an unknown one."""
    if bounds is None or bounds[0] is None or math.isnan(bounds[0]):
        return ""
    return " to ".join(format(bound, form) for bound in bounds)


def bracketed(value: float, bounds: Sequence[float] | None, digits: int = 3) -> str:
    """Return a figure with its interval in brackets, if there is one."""
    text = f"{value:.{digits}f}"
    return f"{text} [{', '.join(f'{bound:.{digits}f}' for bound in bounds)}]" if bounds else text


def interval_text(row: Mapping[str, Any], key: str) -> str:
    """Return a figure of a replay and its interval, as in ``13 [4, 23]``.

    ``-``: not reached. ``[-]``: the interval is unknown (a single run).
    """
    low, high = row[f"{key}_interval"]
    value, left, right = (
        "-" if number is None else f"{number:.3g}" if number < 100 else f"{number:.0f}"
        for number in (row[key], low, high)
    )
    return f"{value} [-]" if low is None and high is None else f"{value} [{left}, {right}]"
