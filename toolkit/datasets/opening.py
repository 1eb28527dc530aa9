"""Open a dataset, or ingest logs into a temporary one."""

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
    """Open a dataset's folder or URL, or ingest logs (file or folder) into a temporary dataset.

    Raises
    ------
    LogError
        When the path does not exist or nothing in it can be read.
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
