"""Lines of one source → readings or reasons; each line goes to the reader of its format."""

from __future__ import annotations

from typing import Any

import orjson

from toolkit.logs.formats import line_formats
from toolkit.logs.rows.base import TOO_DEEP, BadLine, Reading, refuse_deep
from toolkit.logs.rows.repeated_keys import count_keys, refuse_repeated

COMMENT = "a comment"
BLANK = "a blank line"
TOO_LONG = "longer than a line of any log"


class LineReader:
    """Reads single lines of one source, whose format was recognised by its first lines."""

    def __init__(self, kind: str, machine: str | None, beside: Any = None) -> None:
        # A file may hold lines of several formats: those of its own are tried first.
        self.formats = sorted(line_formats(), key=lambda found: found.name != kind)
        self.readers = {
            found.name: found.reader(machine, beside if found.name == kind else None)
            for found in self.formats
        }

    def read(self, data: bytes, index: int) -> Reading:
        """Read one line; ``index`` counts the source's lines that are neither blank nor comment.

        Raises
        ------
        BadLine
            With the reason why the line is no record.
        """
        text = data.strip()
        if not text:
            raise BadLine(BLANK)
        if text.startswith(b"#"):
            raise BadLine(COMMENT)
        try:
            entry: Any = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise BadLine(_why_not_json(text, error)) from None
        try:
            return self._interpret(entry, index, text)
        except (RecursionError, orjson.JSONEncodeError):
            raise BadLine(TOO_DEEP) from None

    def _interpret(self, entry: Any, index: int, text: bytes) -> Reading:
        refuse_deep(text)
        refuse_repeated(text, _keys(entry))
        for found in self.formats:
            if found.accepts(entry):
                return self.readers[found.name].interpret(entry, index, text)
        raise BadLine("JSON, but not a tuning record")


def _keys(entry: Any) -> int:
    """Keys where a line has objects as a rule; elsewhere they take a slower look."""
    if isinstance(entry, list):
        record = entry[1] if len(entry) == 2 else None
        return count_keys(record[2:]) if isinstance(record, list) else 0
    if not isinstance(entry, dict):
        return 0
    keys = len(entry)
    for value in entry.values():
        inner = value[-1] if type(value) is list and value else value
        if type(inner) is dict:
            keys += len(inner)
    return keys


def _why_not_json(text: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return f"damaged bytes: not UTF-8 at byte {wrong.start}"
    message = str(error).split(":", 1)[0]
    if b"NaN" in text or b"Infinity" in text:
        return f"not JSON (NaN or Infinity): {message}"
    return f"not JSON: {message}"
