"""What a dataset holds as bytes, whichever way it came there."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from toolkit.datasets import open_dataset


def contents(folder: Path) -> dict[str, bytes]:
    """Every table, sorted by what tells its rows apart."""
    dataset = open_dataset(folder)
    sources = dataset.sources().sort("path")
    tasks = [repr(task) for _, task in sorted(dataset.tasks().items())]
    sketches = [repr(sketch) for _, sketch in sorted(dataset.sketches().items())]
    return {
        "records": _bytes(dataset.records().collect().sort("source_id", "line")),
        "rejected": _bytes(dataset.rejected().sort("source_id", "line")),
        "sources": _bytes(sources),
        "tasks": "\n".join(tasks).encode(),
        "sketches": "\n".join(sketches).encode(),
        "fingerprint": dataset.fingerprint().encode(),
    }


def _bytes(frame: pl.DataFrame) -> bytes:
    return "\n".join(map(repr, frame.rows())).encode()


def debris(folder: Path) -> set[str]:
    """Files of a dataset that its manifest does not name."""
    from toolkit.datasets import manifest as manifests

    named = {part.file for part in manifests.load(folder).parts()}
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    return found - named - {"dataset.json", ".lock"}
