"""JSON documents of logs decoded, also where they are cut off, damaged or repeat keys."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.repeated_keys import count_keys, decode, refuse_constant, written_keys

T4, KERNEL_TUNER = "t4", "kernel-tuner"
"""Names of the two formats."""


def decode_document(data: bytes, kind: str) -> tuple[Any, int]:
    """Decode a document; also give how many bytes of it were understood.

    Raises
    ------
    BadLine
        When nothing of it can be understood.
    """
    closed = data
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        closed = data.rstrip().rstrip(b",") + b"}}"  # a cache that is still being written
        try:
            document = orjson.loads(closed if kind == KERNEL_TUNER else data)
        except orjson.JSONDecodeError:
            found = _before_damage(data, kind)
            if found is None:
                raise BadLine(f"not JSON: {error}") from None
            return found
    if written_keys(closed) != count_keys(document):
        document = decode(closed)
    return document, len(data)


def _before_damage(data: bytes, kind: str) -> tuple[Any, int] | None:
    """Read the entries of a damaged document one by one, up to the damage."""
    opened = re.search(rb'"results"\s*:\s*\[' if kind == T4 else rb'"cache"\s*:\s*\{', data)
    if opened is None:
        return None
    ends = "]}" if kind == T4 else "}}"
    # Every byte is one character, whatever it stands for: places stay places.
    text = data.decode("latin-1")
    parser = json.JSONDecoder(parse_constant=refuse_constant)
    at = end = opened.end()
    space = re.compile(r"[\s,:]*")
    try:
        while True:
            if kind == KERNEL_TUNER:
                _, at = parser.raw_decode(text, _behind(space, text, at))
            _, at = parser.raw_decode(text, _behind(space, text, at))
            end = at
    except (ValueError, RecursionError):
        pass
    try:
        return decode(data[:end] + ends.encode()), end
    except (ValueError, RecursionError):
        return None


def _behind(space: re.Pattern[str], text: str, at: int) -> int:
    found = space.match(text, at)
    return at if found is None else found.end()
