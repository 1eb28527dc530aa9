"""Log files as byte streams: find them in folders, decompress them, split them into lines."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import zstandard

from toolkit.errors import LogError

MAX_LINE_BYTES = 32 * 2**20
"""Longer lines are rejected unread: the longest real ones (workloads) have a few MiB."""

BLOCK_BYTES = 4 * 2**20
"""Number of bytes read at a time."""

BLOCK_LINES = 50_000
"""A block has at most about this many lines, so that a file of newlines does not fill memory."""

_STEP_BYTES = 2**17

HOPELESS_BYTES = 2**31
"""Reading stops at a line of this length: the file is no log."""

BOM = b"\xef\xbb\xbf"

DecompressionErrors = (
    EOFError,
    OSError,  # gzip.BadGzipFile, errors of bzip2 and of the disk
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
)


class LineBlock(NamedTuple):
    """Consecutive lines of a source.

    ``body`` holds the lines with their newlines. ``number`` and ``offset`` count the lines and
    bytes of the source before the block, ``end`` the bytes up to its end. ``complete`` is false
    for a last line without a newline. An ``oversize`` block is one line that is too long to be
    read; its body is the beginning of the line.
    """

    body: bytes
    number: int
    offset: int
    end: int
    complete: bool = True
    oversize: bool = False

    def pieces(self) -> list[bytes]:
        """The lines with their newlines (for an oversize line: its beginning)."""
        return io.BytesIO(self.body).readlines()  # bytes.split takes seven times as long


HIDDEN = "hidden (its name begins with a dot): to read it, give its path"
LINKED = "a link to a folder, which is not followed: to read it, give its path"
BAD_NAME = "its name is not UTF-8: rename it"


class Found(NamedTuple):
    """A file or folder found at a path; ``trouble`` says why it is not read."""

    path: Path
    trouble: str | None = None


def find_logs(paths: Iterable[str | Path]) -> list[Found]:
    """List the files at the given paths (folders are walked), each once, in a stable order.

    Entries of a folder that are not read are listed, too, with the reason: hidden files and
    folders, links to folders, and names that are not UTF-8. Raises ``LogError`` for a path that
    does not exist, or is neither a file nor a folder.
    """
    found: dict[Path, Found] = {}
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise LogError("no such file or folder", where=shown(path), cure="check the path")
        if not (path.is_file() or path.is_dir()):
            # The writer of a pipe may never begin, and logs are read more than once.
            cure = "save its content in a file first"
            raise LogError("is no regular file", where=path, cure=cure)
        for entry in sorted(_walk(path)) if path.is_dir() else [_named(path)]:
            found.setdefault(entry.path, entry)
    return list(found.values())


def _walk(top: Path) -> Iterator[Found]:
    for at, folders, files in os.walk(top):
        folder = Path(at)
        for name in list(folders):
            if name.startswith("."):
                folders.remove(name)
                yield Found(folder / name, HIDDEN)
            elif (folder / name).is_symlink():
                yield Found(folder / name, LINKED)
        for name in files:
            path = folder / name
            if path.is_file():
                yield Found(path, HIDDEN) if name.startswith(".") else _named(path)


def _named(path: Path) -> Found:
    return Found(path, None if shown(path) == str(path) else BAD_NAME)


def shown(path: object) -> str:
    """Return a path (or name) as text that can be printed and saved, even if it is not UTF-8."""
    return str(path).encode(errors="backslashreplace").decode()


@contextmanager
def open_log(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading; gzip, Zstandard, xz and bzip2 are recognised by the first bytes.

    Raises ``LogError`` if it cannot be opened.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise LogError(f"cannot be read: {error.strerror or error}", where=path) from None
    with raw:
        yield decompressed(raw, rewinds=raw.seekable())


def is_compressed(path: Path) -> bool:
    """Whether a file's first bytes are those of a supported compression."""
    with path.open("rb") as stream:
        return stream.read(6).startswith(tuple(_COMPRESSIONS))


def decompressed(raw: IO[bytes], *, rewinds: bool = False) -> IO[bytes]:
    """Return a stream's content, decompressed if its first bytes are those of a compression.

    ``rewinds``: the stream can be set back to its beginning.
    """
    head = raw.read(6)
    if rewinds:
        raw.seek(-len(head), io.SEEK_CUR)
        stream = raw
    else:
        parts = [head]  # put back before the rest
        given = Given(lambda size: parts.pop() if parts and parts[0] else raw.read(size))
        stream = cast("IO[bytes]", io.BufferedReader(given, 2**17))
    for magic, opened in _COMPRESSIONS.items():
        if head.startswith(magic):
            return cast("IO[bytes]", _Careful(opened(stream)))
    return stream if rewinds else cast("IO[bytes]", _Careful(stream))


class Given(io.RawIOBase):
    """A stream of the bytes that a function returns; its argument is the largest number."""

    def __init__(self, give: Callable[[int], bytes]) -> None:
        self._give = give

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._give(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Zstandard:
    """Reads Zstandard frames; the library's own stream does not report a last frame cut off."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._frames = zstandard.ZstdDecompressor(max_window_size=2**27)
        self._frame: Any = None
        self._behind = b""
        self._ready = io.BytesIO()

    def read1(self, size: int) -> bytes:
        while not (part := self._ready.read(size)):
            # A thousand bytes hold at most 32 MiB.
            packed = self._behind or self._stream.read(1024)
            if not packed:
                if self._frame is not None:
                    raise EOFError("it ends within a Zstandard frame")
                break
            if self._frame is None:
                self._frame = self._frames.decompressobj()
            self._ready = io.BytesIO(self._frame.decompress(packed))
            self._behind = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        return part


_COMPRESSIONS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"\x28\xb5\x2f\xfd": _Zstandard,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""Supported compressions, by the first bytes of a file."""


class _Careful:
    """Reads in small steps, so that the content before damage is returned, not lost."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._damage: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        if self._damage is not None:
            raise self._damage
        parts: list[bytes] = []
        left = size
        while left:
            try:
                part = self._stream.read1(_STEP_BYTES if left < 0 else min(left, _STEP_BYTES))
            except (LogError, *DecompressionErrors) as error:
                if not parts:
                    raise
                self._damage = error
                break
            if not part:
                break
            parts.append(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)


def read_blocks(
    stream: IO[bytes],
    *,
    number: int = 0,
    offset: int = 0,
    tap: Callable[[bytes], object] = lambda taken: None,
) -> Iterator[LineBlock]:
    """Split a stream into blocks of lines; block and line limits bound the memory.

    ``number`` and ``offset`` are the lines and bytes of the source before the stream's position.
    ``tap`` receives all bytes in order; when a block is yielded, it has received exactly the bytes
    up to the block's end. Raises ``LogError`` for damaged compressed data, after all lines before
    the damage were yielded.
    """
    rest = head = b""  # the rest of the last chunk; the beginning of an oversize line
    skipped = 0  # bytes of an oversize line that tap has received already
    while True:
        damage: Exception | None = None
        try:
            chunk = stream.read(BLOCK_BYTES)
        except DecompressionErrors as error:
            damage, chunk = error, b""
        if not chunk:
            tap(rest)
            if skipped or rest:
                end = offset + (skipped or len(rest))
                yield LineBlock(head if skipped else rest, number, offset, end, False, skipped > 0)
            if damage is not None:
                raise LogError(f"the data is damaged: {damage}")
            return
        if offset == 0 and not skipped and (rest + chunk[:3]).startswith(BOM):
            tap(BOM)
            offset, chunk, rest = len(BOM), (rest + chunk)[len(BOM) :], b""
        if skipped:
            cut = chunk.find(b"\n") + 1
            tap(chunk[: cut or len(chunk)])
            skipped += cut or len(chunk)
            if skipped > HOPELESS_BYTES:
                raise LogError("a line has more than 2 GiB, so this is no log: reading stopped")
            if not cut:
                continue
            yield LineBlock(head, number, offset, offset + skipped, oversize=True)
            number, offset, skipped, chunk = number + 1, offset + skipped, 0, chunk[cut:]
        cut = chunk.rfind(b"\n") + 1
        if cut:
            body = b"".join((rest, memoryview(chunk)[:cut]))
            rest = chunk[cut:]
            for part, lines in _cut(body, _lines(body)):
                tap(part)
                yield LineBlock(part, number, offset, offset + len(part))
                number, offset = number + lines, offset + len(part)
        else:
            rest += chunk
        if len(rest) > MAX_LINE_BYTES:
            # Too long for a line of a log: its beginning is kept, the rest only counted.
            tap(rest)
            head, skipped, rest = rest[:4096], len(rest), b""


def _lines(body: bytes) -> int:
    """Number of newlines (``bytes.count`` takes five times as long)."""
    data = np.frombuffer(body, dtype=np.uint8)
    steps = range(0, len(data), _STEP_BYTES)
    return sum(int(np.count_nonzero(data[at : at + _STEP_BYTES] == 10)) for at in steps)


def _cut(body: bytes, lines: int) -> Iterator[tuple[bytes, int]]:
    """Split whole lines into pieces of at most ``BLOCK_LINES``; yield each with its line count."""
    if lines <= BLOCK_LINES:
        yield body, lines
        return
    middle = body.find(b"\n", len(body) // 2) + 1
    if not 0 < middle < len(body):
        middle = body.rfind(b"\n", 0, len(body) - 1) + 1
    before = _lines(body[:middle])
    yield from _cut(body[:middle], before)
    yield from _cut(body[middle:], lines - before)
