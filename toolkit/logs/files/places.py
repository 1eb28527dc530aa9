"""The place of a log: a file, or a member of an archive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

import orjson

from toolkit.errors import LogError
from toolkit.logs.files.archives import Archive
from toolkit.logs.files.files import DecompressionErrors, open_log, read_blocks, shown

_ENDINGS = re.compile(r"(\.json)?(\.(gz|xz|zst|bz2))?$")


@dataclass(frozen=True)
class Place:
    """A file, or (``member``) a file of an archive; reads decompressed content.

    ``beside`` lists the members of its folder in the archive.
    """

    path: Path
    member: str | None = None
    archive: Archive | None = field(default=None, compare=False, repr=False)
    beside: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return shown(self.path if self.member is None else f"{self.path}::{self.member}")

    @property
    def identity(self) -> str:
        """The resolved path: identifies this place independent of the working directory."""
        resolved = shown(self.path.resolve())
        return resolved if self.member is None else f"{resolved}::{shown(self.member)}"

    @property
    def name(self) -> str:
        return self.path.name if self.member is None else PurePosixPath(self.member).name

    @property
    def stem(self) -> str:
        """The name without the endings of (compressed) JSON."""
        return _ENDINGS.sub("", self.name)

    @cached_property
    def folder(self) -> tuple[Path, str | None]:
        """The file's folder (and its folder inside an archive)."""
        if self.member is None:
            return self.path.parent, None
        return self.path, str(PurePosixPath(self.member).parent)

    def open(self) -> AbstractContextManager[IO[bytes]]:
        if self.member is None or self.archive is None:
            return open_log(self.path)
        return self.archive.open(self.member)

    def json(self) -> dict[str, Any]:
        """The JSON object in the file; an empty one if none can be read."""
        try:
            with self.open() as stream:
                found = orjson.loads(stream.read())
        except (LogError, orjson.JSONDecodeError, *DecompressionErrors):
            return {}
        return found if isinstance(found, dict) else {}

    def lines(self) -> Iterator[bytes]:
        """Lines without their newlines, up to damage if there is any."""
        with suppress(LogError, *DecompressionErrors), self.open() as stream:
            for block in read_blocks(stream):
                yield from (piece.removesuffix(b"\n") for piece in block.pieces())

    def siblings(self) -> list[Place]:
        """Files of the same folder (this one included), sorted by name."""
        if self.member is None:
            return [Place(path) for path in sorted(self.path.parent.iterdir()) if path.is_file()]
        places = [Place(self.path, name, self.archive, self.beside) for name in self.beside]
        return sorted(places, key=lambda place: place.name)
