"""What a file is, told by its content."""

from __future__ import annotations

import re
from enum import Enum
from typing import IO

import orjson

from toolkit.logs.files.files import BOM, MAX_LINE_BYTES

HEAD_BYTES = 2**18
"""So much of a file is looked at."""

LONGEST_FIRST = 2 * MAX_LINE_BYTES
"""A first line may have so many bytes: more than any that is read."""


class Kind(str, Enum):
    """What a file was recognised as."""

    AUTOTVM = "autotvm"
    ANSOR = "ansor"
    METASCHEDULE = "metaschedule"
    METASCHEDULE_WORKLOAD = "metaschedule-workload"
    T4 = "t4"
    KERNEL_TUNER = "kernel-tuner"
    SIDECAR = "sidecar"
    EMPTY = "empty"
    TEXT_LOG = "metaschedule-text-log"
    PICKLE = "pickle"
    FOREIGN = "foreign"


LINE_FORMATS = frozenset({Kind.AUTOTVM, Kind.ANSOR, Kind.METASCHEDULE, Kind.METASCHEDULE_WORKLOAD})

DOCUMENTS = frozenset({Kind.T4, Kind.KERNEL_TUNER})
"""Kinds whose file is one JSON document."""

READABLE = LINE_FORMATS | DOCUMENTS

WHY_NOT = {
    Kind.TEXT_LOG: "a MetaSchedule text log: it holds no configurations, so it cannot be learned "
    "from; the database beside it (database_tuning_record.json) can be read",
    Kind.PICKLE: "a pickle (or AutoTVM's pickle protocol): reading it would run what it holds; "
    "convert it with `python -m tvm.autotvm.record --mode convert` in the TVM that wrote it",
    Kind.FOREIGN: "no tuning log that the toolkit knows",
    Kind.EMPTY: "the file is empty",
}

_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
    (b"Rar!\x1a\x07", "a RAR archive: unpack it first"),
    (b"\x04\x22\x4d\x18", "compressed with LZ4: decompress it first"),
    (b"\x1f\x9d", "compressed with compress (.Z): decompress it first"),
    (b"]\x00\x00", "compressed with the old LZMA format: decompress it first"),
    (b"\xff\xfe", "text in UTF-16: convert it to UTF-8"),
    (b"\xfe\xff", "text in UTF-16: convert it to UTF-8"),
    (b"PAR1", "a Parquet file, not a log"),
    (b"SQLite format 3\x00", "an SQLite database, not a log"),
    (b"\x89HDF\r\n", "an HDF5 file, not a log"),
    (b"\x93NUMPY", "a NumPy array, not a log"),
)


def read_head(stream: IO[bytes]) -> bytes:
    """The beginning of a file, as much as it takes to recognise it.

    Where it ends within the first line, this line and as much again behind it.
    """
    head = stream.read(HEAD_BYTES)
    if b"\n" in head or len(head) < HEAD_BYTES or head.removeprefix(BOM)[:1] not in b"{[# \t":
        return head
    parts = [head]
    while len(parts) * HEAD_BYTES <= LONGEST_FIRST and (part := stream.read(HEAD_BYTES)):
        parts.append(part)
        if b"\n" in part:
            parts.append(stream.read(HEAD_BYTES))
            break
    return b"".join(parts)


def why_foreign(head: bytes) -> str:
    """What a file of no known kind is, where its first bytes say it."""
    found = (why for magic, why in _OTHERS if head.startswith(magic))
    return next(found, WHY_NOT[Kind.FOREIGN])


_TEXT_LOG = re.compile(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? +(\[?[A-Z]+\]?|[\w.]+:\d+)", re.M)
_PICKLE_LINE = re.compile(rb"^gA[NRSV][A-Za-z0-9+/=]+\t")


def kind_of_line(line: bytes) -> Kind | None:
    """Recognise one line of a log; ``None`` where it is of no known format."""
    text = line.strip()
    if text.startswith(b"{"):
        try:
            entry = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        return kind_of_object(entry)
    if text.startswith(b"["):
        if re.match(rb'\[\s*"\d+"\s*,\s*"', text):
            return Kind.METASCHEDULE_WORKLOAD
        if re.match(rb"\[\s*\d+\s*,\s*\[\s*\[\s*\[", text):
            return Kind.METASCHEDULE
    return None


def kind_of_object(entry: object) -> Kind | None:
    """Recognise a decoded line."""
    if not isinstance(entry, dict):
        return None
    if "input" in entry and "config" in entry:
        return Kind.AUTOTVM
    inputs = entry.get("i")
    if isinstance(inputs, list) and "r" in entry:
        return Kind.ANSOR if inputs and isinstance(inputs[0], list) else Kind.AUTOTVM
    return None


def detect(head: bytes, name: str = "") -> Kind:
    """Recognise a file by its first bytes (decompressed, some hundred KiB).

    The name decides only what the content cannot: the collector's own sidecar files.
    """
    if head.startswith(BOM):
        head = head[len(BOM) :]
    if not head.strip():
        return Kind.EMPTY
    if re.match(r"(database_trials\.jsonl|collection\.json)(\.(gz|xz|zst))?$", name):
        return Kind.SIDECAR
    if head.lstrip()[:1] == b"{":
        if b'"tune_params_keys"' in head and b'"cache"' in head:
            return Kind.KERNEL_TUNER
        if b'"results"' in head and b'"configuration"' in head and b'"invalidity"' in head:
            return Kind.T4
    lines = head.split(b"\n")
    for line in lines:
        kind = kind_of_line(line)
        if kind is not None:
            return kind
    if (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05") or _PICKLE_LINE.match(head):
        return Kind.PICKLE
    if _TEXT_LOG.search(head[:8192]):
        return Kind.TEXT_LOG
    return Kind.FOREIGN
