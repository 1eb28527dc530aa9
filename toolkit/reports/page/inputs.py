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
    """

    dataset: Path | None = None
    models: tuple[Path, ...] = ()
    simulations: tuple[Path, ...] = ()
    validation: Path | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.dataset or self.models or self.simulations or self.validation)


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
    if dataset is not None:
        _require(dataset, DATASET_FILE, "dataset", "toolkit ingest LOGS")
    if validation is not None:
        _require(validation, VERDICTS_FILE, "validation", "toolkit validate")
    for folder in models or ():
        _require(folder, MANIFEST_FILE, "trained model", "toolkit train throughput")
    for folder in simulations or ():
        _require(folder, SUMMARY_FILE, "simulation", "toolkit simulate")
    found = ReportInputs(
        dataset=dataset or _present(workspace.dataset, DATASET_FILE),
        models=_below(workspace.root / "models", MANIFEST_FILE, models),
        simulations=_below(workspace.root / "simulations", SUMMARY_FILE, simulations),
        validation=validation or _present(workspace.validation, VERDICTS_FILE),
    )
    if not found:
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


def _present(folder: Path, name: str) -> Path | None:
    return folder if (folder / name).is_file() else None


def _below(parent: Path, name: str, named: Sequence[Path] | None) -> tuple[Path, ...]:
    if named is not None:
        return tuple(named)
    return tuple(sorted(path.parent for path in parent.glob(f"*/{name}")))


def _require(folder: Path, name: str, what: str, command: str) -> None:
    if not (folder / name).is_file():
        raise ToolkitError(f"there is no {what} ({name})", where=folder, cure=f"made by: {command}")
