"""Where results may be written: never over a dataset or a log, over other files only if asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from toolkit.datasets import manifest as manifests
from toolkit.datasets.read.open import Dataset
from toolkit.errors import DatasetError
from toolkit.logs.files.places import Place
from toolkit.records import content_id


def check_targets(targets: Iterable[Path], dataset: Dataset, *, force: bool = False) -> None:
    """Refuse targets whose writing would lose data.

    Parameters
    ----------
    dataset
        Its files and the logs that it was read from are never written over.
    force
        Allows files that exist otherwise.

    Raises
    ------
    DatasetError
        When a target is inside a dataset's folder, an ingested log, or a file that exists.
    """
    sources = {source.source_id for source in dataset.manifest.sources}
    archives = {
        Path(source.path.partition("::")[0]).resolve()
        for source in dataset.manifest.sources
        if "::" in source.path
    }
    for target in targets:
        whole = target.resolve()
        home = next((p for p in (whole, *whole.parents) if (p / manifests.FILE).exists()), None)
        if home is not None:
            raise DatasetError(
                f"inside the dataset {home}", where=target, cure="name a file somewhere else"
            )
        if content_id("source", Place(target).identity) in sources or whole in archives:
            raise DatasetError(
                "a log that the dataset was read from", where=target, cure="name another file"
            )
        if whole.exists() and not whole.is_file():
            raise DatasetError("no plain file", where=target, cure="name a file")
        if whole.exists() and not force:
            raise DatasetError(
                "exists", where=target, cure="name another file, or allow it with --force"
            )
