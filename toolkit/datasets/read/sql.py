"""What SQL may say here: one SELECT on the dataset's tables, no longer than polars can take.

Polars' SQL reads files by functions, knows statements that are no SELECT, and ends the process
where operators follow each other by the thousand (its parser recurses without a limit).
"""

from __future__ import annotations

import re

from toolkit.errors import DatasetError

TABLES = ("records", "candidates", "tasks", "sketches", "sources", "rejected")

MAX_OPERATORS = 200
"""Polars crashes from some 700 on."""

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
      | (?P<comment>--[^\r\n]*|/\*.*?\*/)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d\w*)
      | (?P<mark>[(),.;\[\]])
      | (?P<operator>[^\s\w(),.;\[\]'"`]+?)""",
    re.VERBOSE | re.DOTALL,
)
_NESTING = {"and", "or", "union", "intersect", "except", "join", "when", "select", *TABLES}
"""Words of which each makes the plan deeper, as an operator does."""


def check_sql(sql: str, *, condition: bool = False) -> None:
    """Refuse SQL that is more than one SELECT (or one condition) on the dataset's tables.

    Raises
    ------
    DatasetError
        For another statement, a function that reads files, or too many operators.
    """
    tokens = [(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(sql) if m.lastgroup != "comment"]
    words = [text.lower() for kind, text in tokens if kind == "word"]
    if not condition and (not words or words[0] not in ("select", "with")):
        raise DatasetError(
            "only a SELECT is run", cure="begin with SELECT; the tables are " + ", ".join(TABLES)
        )
    for (kind, text), (_, behind) in zip(tokens, [*tokens[1:], ("", "")], strict=False):
        if kind in ("word", "quoted") and behind == "(":
            name = text.strip('"`').lower()
            if name.startswith(("read_", "scan_")):
                raise DatasetError(
                    f"{name} reads files", cure="the tables are " + ", ".join(TABLES)
                )
    # Where quotes end may be seen otherwise by polars: what it takes for code must be seen here.
    if any(text == "$" for kind, text in tokens if kind == "operator") or re.search(
        r"\\['\"]", sql
    ):
        raise DatasetError(
            "'$' and a backslash before a quote are not understood",
            cure="write a quote in a text as two quotes",
        )
    operators = sum(kind == "operator" for kind, _ in tokens)
    operators += sum(word in _NESTING for word in words)
    if operators > MAX_OPERATORS:
        raise DatasetError(
            f"{operators:,} operators, more than {MAX_OPERATORS}",
            cure="use IN (...) for many values, or filter the rows with --out in another program",
        )
