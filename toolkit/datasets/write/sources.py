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
    paths: Iterable[str | Path], machine: str | None, rule: re.Pattern[str] | None
) -> list[LogFile]:
    """Find and recognise all files that paths name: folders and archives are walked.

    ``rule`` is searched in every path; its groups become labels.

    Raises
    ------
    LogError
        When a path does not exist.
    """
    files = [file for found in find_logs(paths) for file in _look(found)]
    for file in files:
        if file.kind == FOREIGN:
            continue
        file.machine, file.ruled = machine, rule is not None
        if rule is not None and (match := rule.search(_text(file.place))):
            file.labels = {k: v for k, v in match.groupdict().items() if v is not None}
            named = file.labels.pop("machine", None)
            file.machine = machine or named
    return files


def _text(place: Place) -> str:
    return place.path.as_posix() if place.member is None else f"{place.path}/{place.member}"


def _look(found: Found) -> Iterator[LogFile]:
    """Recognise a file, or the members of an archive."""
    path, trouble = found.path, found.trouble
    if not trouble:
        try:
            with open_log(path) as stream:
                head = read_head(stream)
        except LogError as error:
            trouble = error.what
        except (OSError, *DecompressionErrors) as error:
            trouble = f"cannot be read: {error}"
    if trouble:
        yield LogFile(Place(path), FOREIGN, trouble=trouble)
    elif is_archive(head):
        yield from _unpack(path)
    else:
        yield _recognised(Place(path), head)


def _unpack(path: Path) -> Iterator[LogFile]:
    archive, trouble = Archive(path), None
    files: dict[str, LogFile] = {}
    try:
        for name, head, why in archive.members(read_head):
            files[name] = _recognised(Place(path, name, archive), head)
            if why:
                files[name].kind, files[name].trouble = FOREIGN, why
    except LogError as error:
        trouble = error.what
    digest = file_sha256(path)
    for name, file in files.items():
        file.place = Place(path, name, archive, beside=tuple(files))
        file.__dict__["sha256"] = digest
        yield file
    if trouble:
        yield LogFile(Place(path), FOREIGN, trouble=trouble)


def _recognised(place: Place, head: bytes) -> LogFile:
    kind = detect(head, place.name)
    return LogFile(place, kind, trouble=why_foreign(head) if kind == FOREIGN else None)
