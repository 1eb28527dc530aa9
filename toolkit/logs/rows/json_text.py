"""JSON that parsers take too easily or not at all: a key that stands twice, a cut-off document.

Where a key stands twice parsers keep the last value and say nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

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


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a decoded value."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def part(value: Any, name: str) -> dict[str, Any]:
    """The object of that name in a decoded one; an empty one where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def holds_repeated(value: Any) -> bool:
    """Whether an object with a repeated key is anywhere in a decoded value."""
    return any(type(item) is Repeated for item in _objects(value))


def count_keys(value: Any) -> int:
    """Keys of all objects in a decoded value."""
    return sum(map(len, _objects(value)))


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


def decode_document(data: bytes, begin: bytes, end: bytes, keyed: bool) -> tuple[Any, int]:
    """Decode a document, also where it is cut off; give how many bytes of it were understood.

    ``begin`` (a pattern) and ``end`` stand around its entries, each with a key where ``keyed``.
    Raises ``BadLine`` where nothing of it can be understood.
    """
    closed = data
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if keyed:  # a document that is still being written
            closed = data.rstrip().rstrip(b",") + end
        try:
            document = orjson.loads(closed)
        except orjson.JSONDecodeError:
            found = _before_damage(data, begin, end, keyed)
            if found is None:
                raise BadLine(f"not JSON: {error}") from None
            return found
    if written_keys(closed) != count_keys(document):
        document = decode(closed)
    return document, len(data)


def _before_damage(data: bytes, begin: bytes, end: bytes, keyed: bool) -> tuple[Any, int] | None:
    """Read the entries of a damaged document one by one, up to the damage."""
    opened = re.search(begin, data)
    if opened is None:
        return None
    # Every byte is one character, whatever it stands for: places stay places.
    text = data.decode("latin-1")
    parser = json.JSONDecoder(parse_constant=refuse_constant)
    between = re.compile(r"[\s,:]*")
    at = stop = opened.end()
    try:
        while True:
            for _ in range(1 + keyed):
                space = between.match(text, at)
                _, at = parser.raw_decode(text, space.end() if space else at)
            stop = at
    except (ValueError, RecursionError):
        pass
    try:
        return decode(data[:stop] + end), stop
    except (ValueError, RecursionError):
        return None
