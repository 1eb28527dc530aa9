"""JSON objects in which a key stands twice: parsers keep the last value and say nothing."""

from __future__ import annotations

import json
from typing import Any

from toolkit.logs.rows.base import BadLine

TWICE = "a key stands twice in a JSON object"


class Repeated(dict[str, Any]):
    """An object in which a key stands twice; what it said first is kept under other names."""


def decode(text: bytes) -> Any:
    """Decode JSON, objects with repeated keys as ``Repeated``; ten times slower than orjson."""
    return json.loads(
        text, object_pairs_hook=_object, parse_int=_integer, parse_constant=refuse_constant
    )


def refuse_constant(word: str) -> None:
    """Refuse NaN and Infinity, which are no JSON."""
    raise ValueError(word)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) == len(pairs):
        return known
    first: dict[str, Any] = {}
    for number, (key, value) in enumerate(pairs):
        first.setdefault(key if key not in first else f"{key}\0{number}", value)
    return Repeated(first)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else float(digits)


def holds_repeated(value: Any) -> bool:
    """Whether an object with a repeated key is anywhere in a decoded value."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is Repeated:
            return True
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return False


def written_keys(text: bytes) -> int | None:
    """How many keys stand in a JSON text; ``None`` where they are not written as usual."""
    keys = text.count(b'":')  # inside a string the quote would have a backslash before it
    if text.count(b":") != keys and any(f"{space}:".encode() in text for space in " \t\r\n"):
        return None
    return keys


def refuse_repeated(text: bytes, keys: int = 0) -> None:
    """Raise ``BadLine`` where a key stands twice; ``keys`` are those that were decoded."""
    # As many colons as keys were decoded: no key was lost. Other colons stand in texts.
    if text.count(b":") != keys and written_keys(text) != keys and holds_repeated(decode(text)):
        raise BadLine(TWICE)


def count_keys(value: Any) -> int:
    """Keys of all objects in a decoded value."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            count += len(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return count
