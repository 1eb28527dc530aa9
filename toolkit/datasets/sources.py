"""What files are, before they are read: kinds, identities, labels."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.errors import LogError
from toolkit.logs.detect import HEAD_BYTES, Kind, detect
from toolkit.logs.files import DecompressionErrors, open_log
from toolkit.records import content_id


@dataclass
class LogFile:
    """One file that was asked for."""

    path: Path
    kind: Kind
    labels: dict[str, str] = field(default_factory=dict)
    machine: str | None = None
    trouble: str | None = None

    @property
    def source_id(self) -> str:
        """Identity of the file in a dataset: its resolved path."""
        return content_id("source", str(self.path.resolve()))

    def sha256(self) -> str:
        """SHA-256 of the file as it lies on disk."""
        with self.path.open("rb") as stream:
            digest = hashlib.sha256()
            while chunk := stream.read(2**20):
                digest.update(chunk)
        return digest.hexdigest()


def inspect(path: Path, machine: str | None, path_rule: re.Pattern[str] | None) -> LogFile:
    """Recognise a file and read its labels off its path."""
    labels: dict[str, str] = {}
    if path_rule is not None and (match := path_rule.search(path.as_posix())):
        labels = {k: v for k, v in match.groupdict().items() if v is not None}
    named = labels.pop("machine", None)
    try:
        with open_log(path) as stream:
            kind = detect(stream.read(HEAD_BYTES), path.name)
    except LogError as error:
        return LogFile(path, Kind.FOREIGN, labels, trouble=error.what)
    except (OSError, *DecompressionErrors) as error:
        return LogFile(path, Kind.FOREIGN, labels, trouble=f"cannot be read: {error}")
    return LogFile(path, kind, labels, machine or named)
