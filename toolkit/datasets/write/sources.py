"""What files are, before they are read: kinds, identities, labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from toolkit.datasets.read.integrity import file_sha256
from toolkit.errors import LogError
from toolkit.logs.files.archives import Archive, is_archive
from toolkit.logs.files.files import DecompressionErrors, Found, find_logs, open_log
from toolkit.logs.files.places import Place
from toolkit.logs.read.detect import FOREIGN, detect, read_head, why_foreign
from toolkit.records import content_id


@dataclass
class LogFile:
    """One file that was asked for, or one of an archive that was.

    ``ruled`` says that a rule on the path was given: without one, labels that are known stay.
    """

    place: Place
    kind: str
    labels: dict[str, str] = field(default_factory=dict)
    machine: str | None = None
    trouble: str | None = None
    ruled: bool = False

    @property
    def source_id(self) -> str:
        """Identity of the file in a dataset: its resolved path."""
        return content_id("source", self.place.identity)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file (of an archive: the whole) as it lies on disk."""
        return file_sha256(self.place.path)


def discover(
    paths: Iterable[str | Path], machine: str | None, path_rule: re.Pattern[str] | None
) -> list[LogFile]:
    """Find and recognise all files that paths name: folders and archives are walked.

    Raises
    ------
    LogError
        When a path does not exist.
    """
    finder = _Finder(machine, path_rule)
    return [file for found in find_logs(paths) for file in finder.look(found)]


class _Finder:
    def __init__(self, machine: str | None, path_rule: re.Pattern[str] | None) -> None:
        self._machine, self._rule = machine, path_rule

    def look(self, found: Found) -> Iterator[LogFile]:
        """Recognise a file, or the members of an archive."""
        path = found.path
        if found.trouble:
            yield LogFile(Place(path), FOREIGN, trouble=found.trouble)
            return
        try:
            with open_log(path) as stream:
                head = read_head(stream)
        except LogError as error:
            yield LogFile(Place(path), FOREIGN, trouble=error.what)
        except (OSError, *DecompressionErrors) as error:
            yield LogFile(Place(path), FOREIGN, trouble=f"cannot be read: {error}")
        else:
            if is_archive(head):
                yield from self._unpack(path)
            else:
                yield self._file(Place(path), head)

    def _unpack(self, path: Path) -> Iterator[LogFile]:
        archive = Archive(path)
        heads: dict[str, LogFile] = {}
        trouble: str | None = None
        try:
            for name, head, why in archive.members(read_head):
                file = self._file(Place(path, name, archive), head)
                if why:
                    file.kind, file.trouble = FOREIGN, why
                heads[name] = file
        except LogError as error:
            trouble = error.what
        beside = tuple(heads)
        digest = file_sha256(path)
        for name, file in heads.items():
            file.place = Place(path, name, archive, beside)
            file.__dict__["sha256"] = digest
            yield file
        if trouble:
            yield LogFile(Place(path), FOREIGN, trouble=trouble)

    def _file(self, place: Place, head: bytes) -> LogFile:
        labels: dict[str, str] = {}
        text = place.path.as_posix() if place.member is None else f"{place.path}/{place.member}"
        if self._rule is not None and (match := self._rule.search(text)):
            labels = {k: v for k, v in match.groupdict().items() if v is not None}
        named = labels.pop("machine", None)
        kind = detect(head, place.name)
        trouble = why_foreign(head) if kind == FOREIGN else None
        machine = self._machine or named
        return LogFile(place, kind, labels, machine, trouble, ruled=self._rule is not None)
