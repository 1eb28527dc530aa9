"""A dataset, or logs that are read into one for as long as they are needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolkit.datasets import manifest as manifests
from toolkit.datasets.read.open import Dataset, open_dataset
from toolkit.datasets.urls import folder_at, is_remote
from toolkit.datasets.write.ingest import ingest
from toolkit.errors import LogError
from toolkit.progress import SILENT, Progress


@contextmanager
def opened(
    path: Path | str, *, machine: str | None = None, progress: Progress = SILENT
) -> Iterator[Dataset]:
    """Open a dataset's folder or URL, or ingest logs (a file, a database's folder) for a while.

    Raises
    ------
    LogError
        When the path does not exist or holds nothing that can be read.
    """
    path = folder_at(path)
    if is_remote(path) or (path / manifests.FILE).is_file():
        yield open_dataset(path)
        return
    if not path.exists():
        raise LogError("does not exist", where=path, cure="give a dataset, a log or a database")
    with tempfile.TemporaryDirectory(prefix="toolkit-") as folder:
        ingest([path], folder, machine=machine, progress=progress)
        yield open_dataset(folder)
