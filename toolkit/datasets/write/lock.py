"""The folder of a dataset and its write lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import KINDS
from toolkit.errors import DatasetError
from toolkit.locks import LOCK_FILE, writing


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a dataset's write lock; a second writer waits for the first.

    Raises
    ------
    DatasetError
        When the folder holds anything that is no dataset, or cannot be written.
    """
    with ExitStack() as stack:
        try:
            _refuse_foreign(folder)
            stack.enter_context(writing(folder, wait=True))
        except OSError as error:
            raise manifests.cannot_write(folder, error) from None
        yield


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder with files of somebody else: a dataset has its folder for itself."""
    if (folder / manifests.FILE).exists() or not folder.exists():
        return
    for path in folder.iterdir():
        # What a first run leaves that is killed before its first commit.
        inside = list(path.iterdir()) if path.name in KINDS and path.is_dir() else [path]
        for entry in inside:
            name = entry.relative_to(folder).as_posix()
            if name != LOCK_FILE and not manifests.is_ours(name):
                raise DatasetError(
                    f"not empty, and no dataset: it holds {name}",
                    where=folder,
                    cure="name a new folder, or an empty one, with --dataset",
                )
