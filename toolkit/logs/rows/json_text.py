"""JSON that usual parsers do not handle: a key that occurs twice, a document that is cut off.

If a key occurs twice, parsers silently keep the last value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

from toolkit.logs.rows.base import BadLine

TWICE = "a key occurs twice in a JSON object"


class Repeated(dict[str, Any]):
    """An object in which a key occurs twice; later values are kept under changed keys."""


def decode(text: bytes) -> Any:
    """Decode JSON; objects with repeated keys are ``Repeated``. Ten times slower than orjson."""
    return json.loads(
        text, object_pairs_hook=_object, parse_int=_integer, parse_constant=refuse_constant
    )


def refuse_constant(word: str) -> None:
    """Refuse NaN and Infinity, which are not JSON."""
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
    """Return the object under a key of a decoded object, or an empty one."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def holds_repeated(value: Any) -> bool:
    """Whether an object with a repeated key is anywhere in a decoded value."""
    return any(type(item) is Repeated for item in _objects(value))


def count_keys(value: Any) -> int:
    """Number of keys of all objects in a decoded value."""
    return sum(map(len, _objects(value)))


def written_keys(text: bytes) -> int | None:
    """Number of keys in a JSON text; ``None`` if a space may precede a colon."""
    keys = text.count(b'":')  # inside a string the quote would have a backslash before it
    if text.count(b":") != keys and any(f"{space}:".encode() in text for space in " \t\r\n"):
        return None
    return keys


def refuse_repeated(text: bytes, keys: int = 0) -> None:
    """Raise ``BadLine`` if a key occurs twice; ``keys`` is the number of decoded keys."""
    # With as many colons as decoded keys, no key was lost. Other colons are inside strings.
    if text.count(b":") != keys and written_keys(text) != keys and holds_repeated(decode(text)):
        raise BadLine(TWICE)


def decode_document(data: bytes, begin: bytes, end: bytes, keyed: bool) -> tuple[Any, int]:
    """Decode a document, even if it is cut off; return it and the number of decoded bytes.

    ``begin`` (a pattern) and ``end`` enclose its entries, which have keys if ``keyed``. Raises
    ``BadLine`` if nothing can be decoded.
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
    # Latin-1 makes every byte one character, so that positions are the same.
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
