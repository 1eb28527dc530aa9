"""Recognise a file by its content."""

from __future__ import annotations

import re
from typing import IO, Any

import orjson

from toolkit.logs.files.files import BOM, MAX_LINE_BYTES
from toolkit.logs.formats import document_formats, line_formats

HEAD_BYTES = 2**18
"""Number of bytes at the beginning of a file that are examined."""

LONGEST_FIRST = 2 * MAX_LINE_BYTES
"""Largest first line that is examined, in bytes: longer than any line that is read."""

SIDECAR, EMPTY, TEXT_LOG = "sidecar", "empty", "metaschedule-text-log"
PICKLE, FOREIGN = "pickle", "foreign"
"""Kinds of files that are no log of a registered format."""

WHY_NOT = {
    TEXT_LOG: "a MetaSchedule text log: it holds no configurations, so it cannot be used; give the "
    "database beside it instead (database_tuning_record.json)",
    PICKLE: "a pickle (or AutoTVM's pickle protocol): reading it could run any code in it; "
    "convert it with `python -m tvm.autotvm.record --mode convert` in the TVM that wrote it",
    FOREIGN: "no tuning log that the toolkit knows",
    EMPTY: "the file is empty",
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
    """Return the beginning of a file, as much as is needed to recognise it.

    If ``HEAD_BYTES`` end within the first line, return this line and as many bytes after it.
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
    """Say what an unknown file is, if its first bytes show it."""
    found = (why for magic, why in _OTHERS if head.startswith(magic))
    return next(found, WHY_NOT[FOREIGN])


_TEXT_LOG = re.compile(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? +(\[?[A-Z]+\]?|[\w.]+:\d+)", re.M)
_OWN = re.compile(
    r"(database_(trials|refused)\.jsonl|(audit|collection|collect|tune|tuned|race|race_settings|"
    r"confirmed|verdicts|spec|leg|curves|error|\.mlflow)\.json)(\.(gz|xz|zst|bz2))?"
)
"""Files that the toolkit itself writes beside logs."""
_PICKLE_LINE = re.compile(rb"^gA[NRSV][A-Za-z0-9+/=]+\t")


def detect(head: bytes, name: str = "") -> str:
    """Recognise a file by its first bytes (decompressed, some hundred KiB).

    Returns the name of a registered format, or ``SIDECAR``, ``EMPTY``, ``TEXT_LOG``, ``PICKLE`` or
    ``FOREIGN``. The file's name is used only for files that the toolkit wrote itself (``SIDECAR``).
    """
    head = head.removeprefix(BOM)
    if not head.strip():
        return EMPTY
    for document in document_formats():
        if document.recognises(head):
            return document.name
    formats = line_formats()
    for line in head.split(b"\n"):
        text = line.strip()
        if text[:1] not in (b"{", b"["):
            continue
        try:
            entry: Any = orjson.loads(text)
        except orjson.JSONDecodeError:
            entry = None
        for found in formats:
            if found.recognises(text, entry):
                return found.name
    if (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05") or _PICKLE_LINE.match(head):
        return PICKLE
    if _TEXT_LOG.search(head[:8192]):
        return TEXT_LOG
    return SIDECAR if _OWN.fullmatch(name) else FOREIGN
