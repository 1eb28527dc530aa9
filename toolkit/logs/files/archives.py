"""Archives, read member by member without unpacking to disk.

No file is ever written under a member's name. Members whose paths lead out of the archive are still
refused, because their labels and folders would be wrong.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from toolkit.errors import LogError
from toolkit.logs.files.files import (
    BAD_NAME,
    DecompressionErrors,
    Given,
    decompressed,
    open_log,
    shown,
)

TAR_MAGIC = slice(257, 262)
MAX_MEMBERS = 1_000_000
CURSORS = 4
"""Readings of one archive that are kept open: the files of a database are read in turns, and each
reading continues at its position. Each holds a decompressor (65 MB for ``xz -9``)."""
FREE_BYTES, MAX_RATIO = 2**30, 1000
"""An archive may unpack to 1 GiB, or to 1000 times its size. More is refused as a trap."""

_Member = tuple[str, "IO[bytes] | None", "str | None"]
"""Name, content (``None`` if it cannot be read), what is wrong with the member."""
_Cursor = tuple[int, Iterator[_Member]]
"""One reading of an archive, front to back: how many members it has passed, and the rest."""


def is_archive(head: bytes) -> bool:
    """Whether (decompressed) content begins like a zip or tar archive."""
    return head.startswith(b"PK\x03\x04") or head[TAR_MAGIC] == b"ustar"


class Archive:
    """An archive that is read front to back; to go back, it is read again from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            self._zip = stream.read(4) == b"PK\x03\x04"
        self._places: dict[str, int] = {}
        self._cursors: list[_Cursor] = []

    def members(
        self, read_head: Callable[[IO[bytes]], bytes]
    ) -> Iterator[tuple[str, bytes, str | None]]:
        """Yield each file's name, the beginning of its (decompressed) content, why it is not read.

        Raises ``LogError`` at the point where the archive is damaged or a trap.
        """
        for place, (name, stream, trouble) in enumerate(self._walk()):
            head = b""
            if stream is not None:
                self._places[name] = place  # if a name occurs twice, the last one counts
                try:
                    head = read_head(decompressed(stream))
                except DecompressionErrors as error:
                    trouble = f"cannot be read: {error}"
            if is_archive(head):
                trouble = "an archive within an archive is not read"
            yield name, head, trouble

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a member that ``members`` yielded; fast if members are opened in order."""
        place = self._places.get(name, 0)
        passed, walk = self._take_before(place)
        for found, stream, _ in walk:
            passed += 1
            if found == name and stream is not None and passed > place:
                try:
                    yield decompressed(stream)
                finally:
                    self._cursors = [*self._cursors[1 - CURSORS :], (passed, walk)]
                return
        raise LogError("this file is no longer in the archive", where=f"{self.path}::{name}")

    def _take_before(self, place: int) -> _Cursor:
        """Remove and return the kept reading that reaches a place first, or start a new one."""
        before = [cursor for cursor in self._cursors if cursor[0] <= place]
        if not before:
            return 0, self._walk()
        cursor = max(before, key=lambda c: c[0])
        self._cursors.remove(cursor)
        return cursor

    def _walk(self) -> Iterator[_Member]:
        walk = self._walk_zip() if self._zip else self._walk_tar()
        for number, (name, stream, trouble) in enumerate(walk):
            if number >= MAX_MEMBERS:
                raise LogError(f"the archive has more than {MAX_MEMBERS:,} files", where=self.path)
            path = PurePosixPath(name.replace("\\", "/"))
            hidden = (p for p in path.parts if p.startswith(".") and p not in (".", ".."))
            if "__MACOSX" in path.parts or any(hidden):
                continue
            if path.is_absolute() or ".." in path.parts or ":" in name[:3]:
                stream, trouble = None, "its path leads out of the archive"
            elif shown(name) != name:
                stream, trouble = None, BAD_NAME
            yield name, stream, trouble

    def _watcher(self) -> Callable[[Any], IO[bytes]]:
        """Return a wrapper for streams that raises ``LogError`` when they give too many bytes."""
        limit = left = max(FREE_BYTES, MAX_RATIO * self.path.stat().st_size)

        def watched(stream: Any) -> IO[bytes]:
            def give(size: int) -> bytes:
                nonlocal left
                data: bytes = stream.read(size)
                left -= len(data)
                if left < 0:
                    what = f"it unpacks to more than {limit >> 20:,} MiB: an archive bomb"
                    raise LogError(what, where=self.path)
                return data

            return cast("IO[bytes]", Given(give))

        return watched

    def _walk_zip(self) -> Iterator[_Member]:
        watched = self._watcher()
        try:
            with zipfile.ZipFile(self.path) as archive:
                for info in archive.infolist():
                    if info.is_dir():
                        continue
                    if info.flag_bits & 1:
                        yield info.filename, None, "this file of the archive is encrypted"
                        continue
                    try:
                        with archive.open(info) as stream:
                            yield info.filename, watched(stream), None
                    except (zipfile.BadZipFile, NotImplementedError) as error:
                        yield info.filename, None, f"cannot be read: {error}"
        except (zipfile.BadZipFile, EOFError, UnicodeError) as error:
            raise LogError(f"the archive is damaged: {error}", where=self.path) from None

    def _walk_tar(self) -> Iterator[_Member]:
        watched = self._watcher()
        try:
            with (
                open_log(self.path) as raw,
                tarfile.open(fileobj=watched(raw), mode="r|") as archive,
            ):
                for info in archive:
                    if info.isdir():
                        continue
                    stream = archive.extractfile(info) if info.isreg() else None
                    yield info.name, stream, None if stream else "a link or device, not a file"
        except (tarfile.TarError, *DecompressionErrors) as error:
            raise LogError(f"the archive is damaged: {error}", where=self.path) from None
