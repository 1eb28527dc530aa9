"""What a report is made from: the folders that the commands before it left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import DatasetError, ModelError, ToolkitError
from toolkit.workspace import Workspace

DATASET_FILE = "dataset.json"
MANIFEST_FILE = "manifest.json"
SUMMARY_FILE = "summary.json"
VERDICTS_FILE = "verdicts.json"
SEARCH_FILE = "tune.json"

Section = Mapping[str, Any]
"""Part of the summary, or of a file that it is made from."""


@dataclass(frozen=True, slots=True)
class ReportInputs:
    """Folders to read; ``None`` or empty where there is none.

    Attributes
    ----------
    dataset
        A Parquet dataset (``toolkit ingest``).
    models
        Trained models of either kind (``toolkit train``).
    simulations
        Results of replay scenarios (``toolkit simulate``).
    validation
        Live verdicts (``toolkit validate``).
    searches
        Searches on a device (``toolkit tune``), finished or under way.
    """

    dataset: Path | None = None
    models: tuple[Path, ...] = ()
    simulations: tuple[Path, ...] = ()
    validation: Path | None = None
    searches: tuple[Path, ...] = ()


def find_inputs(
    root: Path | str = "tuning",
    *,
    dataset: Path | None = None,
    models: Sequence[Path] | None = None,
    simulations: Sequence[Path] | None = None,
    validation: Path | None = None,
) -> ReportInputs:
    """Find everything below a workspace; what is named replaces what would be found.

    Raises
    ------
    ToolkitError
        When a folder that was named does not hold what it should.
    DatasetError
        When there is nothing at all.
    """
    workspace = Workspace(Path(root))
    named: tuple[tuple[Sequence[Path | None], str, str, str], ...] = (
        ([dataset], DATASET_FILE, "dataset", "toolkit ingest LOGS"),
        ([validation], VERDICTS_FILE, "validation", "toolkit validate"),
        (models or [], MANIFEST_FILE, "trained model", "toolkit train throughput"),
        (simulations or [], SUMMARY_FILE, "simulation", "toolkit simulate"),
    )
    for folders, name, what, command in named:
        for folder in folders:
            if folder is not None and not (folder / name).is_file():
                raise ToolkitError(
                    f"there is no {what} ({name})", where=folder, cure=f"made by: {command}"
                )

    def below(parent: str, name: str) -> tuple[Path, ...]:
        return tuple(sorted(path.parent for path in workspace.root.glob(f"{parent}/{name}")))

    found = ReportInputs(
        dataset=dataset or next(iter(below("dataset", DATASET_FILE)), None),
        models=below("models/*", MANIFEST_FILE) if models is None else tuple(models),
        simulations=(
            below("simulations/*", SUMMARY_FILE) if simulations is None else tuple(simulations)
        ),
        validation=validation or next(iter(below("validation", VERDICTS_FILE)), None),
        searches=below("*", SEARCH_FILE),
    )
    parts = (found.dataset, found.models, found.simulations, found.validation, found.searches)
    if not any(parts):
        raise DatasetError(
            "there is nothing to report",
            where=workspace.root,
            cure="begin with: toolkit ingest LOGS",
        )
    return found


def read_json(path: Path, made_by: str) -> dict[str, Any]:
    """Read a JSON object; raise ``ModelError`` that says what makes it anew."""
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ModelError(f"unreadable: {error}", where=path, cure=f"run {made_by} again") from None
    if not isinstance(value, dict):
        raise ModelError("is no JSON object", where=path, cure=f"run {made_by} again")
    return value


@contextmanager
def complete(path: Path, made_by: str) -> Iterator[None]:
    """Say that a file lacks something where what is read from it is not what it should be."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ModelError(
            f"damaged: {type(error).__name__}: {error}", where=path, cure=f"run {made_by} again"
        ) from None
