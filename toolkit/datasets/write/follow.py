"""Logs that are still being written: ingested again and again, only what is new."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolkit.datasets.write.ingest import ingest
from toolkit.datasets.write.reading import Marks
from toolkit.datasets.write.report import IngestReport
from toolkit.errors import LogError
from toolkit.logs.files.files import find_logs
from toolkit.progress import SILENT, Progress


def follow(
    paths: Sequence[str | Path] | str | Path,
    dataset_dir: str | Path,
    *,
    machine: str | None = None,
    path_rule: str | None = None,
    interval_s: float = 2.0,
    rounds: int | None = None,
    progress: Progress = SILENT,
) -> Iterator[IngestReport]:
    """Ingest logs, wait for them to change, ingest what is new; give a report each time.

    Between rounds only sizes and times of files are looked at. Files that appear in followed
    folders are taken in. A last line that is not finished yet waits for its end.

    Parameters
    ----------
    interval_s
        Seconds between two looks.
    rounds
        End after so many looks (never, by default).

    Raises
    ------
    LogError
        When a path does not exist.
    """
    if isinstance(paths, (str, Path)):
        paths = [paths]
    known: dict[Path, tuple[int, int]] = {}
    marks: Marks = {}
    look = 0
    while rounds is None or look < rounds:
        if look:
            time.sleep(interval_s)
        look += 1
        changed: list[Path] = []
        for path, trouble in find_logs(paths):
            if trouble:
                continue
            about = path.stat()
            state = (about.st_size, about.st_mtime_ns)
            if known.get(path) != state:
                known[path] = state
                changed.append(path)
        if not changed:
            continue
        try:
            yield ingest(
                changed,
                dataset_dir,
                machine=machine,
                path_rule=path_rule,
                progress=progress,
                marks=marks,
            )
        except LogError:
            # Nothing that can be read yet: a tuner may have made the file a moment ago.
            continue
