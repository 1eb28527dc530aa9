"""Archives read member by member, without unpacking to disk.

Nothing is ever written under a member's name; members whose names climb out of the archive are
refused all the same, because their labels and folders would be false.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from toolkit.errors import LogError
from toolkit.logs.files.files import BAD_NAME, DecompressionErrors, decompressed, open_log, shown

TAR_MAGIC = slice(257, 262)
MAX_MEMBERS = 1_000_000
FREE_BYTES, MAX_RATIO = 2**30, 1000
"""An archive may unpack to a GiB, or to a thousand times its size: more is a trap."""


class ArchiveMember(NamedTuple):
    """A file of an archive; ``trouble`` says why it is not read."""

    name: str
    head: bytes
    trouble: str | None = None


def is_archive(head: bytes) -> bool:
    """Whether (decompressed) content begins like a zip or tar archive."""
    return head.startswith(b"PK\x03\x04") or head[TAR_MAGIC] == b"ustar"


class Archive:
    """An archive that is read front to back; going back means beginning again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            self._zip = stream.read(4) == b"PK\x03\x04"
        self._cursor: Iterator[tuple[str, IO[bytes] | None, str | None]] | None = None

    def members(self, read_head: Callable[[IO[bytes]], bytes]) -> Iterator[ArchiveMember]:
        """Give all files with the beginning of their (decompressed) content.

        Raises
        ------
        LogError
            Where the archive is damaged or a trap; all members before were given.
        """
        for name, stream, trouble in self._walk():
            if stream is None:
                yield ArchiveMember(name, b"", trouble)
                continue
            try:
                with decompressed(stream) as content:
                    head = read_head(content)
            except (OSError, *DecompressionErrors) as error:
                yield ArchiveMember(name, b"", f"cannot be read: {error}")
                continue
            nested = "an archive within an archive is not read" if is_archive(head) else None
            yield ArchiveMember(name, head, nested)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a member for reading; fast where members are asked for in their order."""
        for attempt in (0, 1):
            if self._cursor is None or attempt:
                self._cursor = self._walk()
            for found, stream, _ in self._cursor:
                if found == name and stream is not None:
                    with decompressed(stream) as content:
                        yield content
                    return
        raise LogError("the member is gone from the archive", where=f"{self.path}::{name}")

    def _walk(self) -> Iterator[tuple[str, IO[bytes] | None, str | None]]:
        walk = self._walk_zip() if self._zip else self._walk_tar()
        for number, (name, stream, trouble) in enumerate(walk):
            if number >= MAX_MEMBERS:
                raise LogError(f"more than {MAX_MEMBERS:,} members", where=self.path)
            if _hidden(name):
                continue
            why = _climbs(name) or (None if shown(name) == name else BAD_NAME)
            yield name, None if why else stream, why or trouble

    def _limit(self) -> int:
        return max(FREE_BYTES, MAX_RATIO * self.path.stat().st_size)

    def _walk_zip(self) -> Iterator[tuple[str, IO[bytes] | None, str | None]]:
        budget = _Budget(self._limit(), self.path)
        try:
            with zipfile.ZipFile(self.path) as archive:
                for info in archive.infolist():
                    if info.is_dir():
                        continue
                    if info.flag_bits & 1:
                        yield info.filename, None, "the member is encrypted"
                        continue
                    try:
                        with archive.open(info) as stream:
                            yield info.filename, budget.watch(stream), None
                    except (zipfile.BadZipFile, NotImplementedError) as error:
                        yield info.filename, None, f"cannot be read: {error}"
        except (zipfile.BadZipFile, EOFError, UnicodeError) as error:
            raise LogError(f"the archive is damaged: {error}", where=self.path) from None

    def _walk_tar(self) -> Iterator[tuple[str, IO[bytes] | None, str | None]]:
        budget = _Budget(self._limit(), self.path)
        try:
            with (
                open_log(self.path) as raw,
                tarfile.open(fileobj=budget.watch(raw), mode="r|") as archive,
            ):
                for info in archive:
                    if info.isdir():
                        continue
                    stream = archive.extractfile(info) if info.isreg() else None
                    yield info.name, stream, None if stream else "a link or device, not a file"
        except (tarfile.TarError, *DecompressionErrors) as error:
            raise LogError(f"the archive is damaged: {error}", where=self.path) from None


class _Budget:
    """Counts what an archive gives, and ends it where that is beyond all reason."""

    def __init__(self, limit: int, path: Path) -> None:
        self._left, self._limit, self._path = limit, limit, path

    def watch(self, stream: Any) -> IO[bytes]:
        return cast("IO[bytes]", _Watched(stream, self))

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise LogError(
                f"unpacks to more than {self._limit >> 20:,} MiB: an archive bomb",
                where=self._path,
            )


class _Watched:
    def __init__(self, stream: Any, budget: _Budget) -> None:
        self._stream, self._budget = stream, budget

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._budget.spend(len(data))
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        self._stream.close()

    def flush(self) -> None:
        return None


def _climbs(name: str) -> str | None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name[:3]:
        return "its path climbs out of the archive"
    return None


def _hidden(name: str) -> bool:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return any((p.startswith(".") and p not in (".", "..")) or p == "__MACOSX" for p in parts)
