"""Inputs of a report: the folders that earlier commands wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import DatasetError, ModelError, ToolkitError

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

    ``models`` are of any kind, ``validation`` holds live verdicts (``toolkit validate``);
    ``searches`` on a device (``toolkit tune``) are finished or under way.
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

    Raises ``ToolkitError`` when a folder that was named does not hold what it should, and
    ``DatasetError`` when there is nothing at all.
    """
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
                    f"there is no {what} ({name})", where=folder, cure=f"make it with: {command}"
                )

    def below(parent: str, name: str) -> list[Path]:
        return sorted(path.parent for path in Path(root).glob(f"{parent}/{name}"))

    found = ReportInputs(
        dataset=dataset or next(iter(below("dataset", DATASET_FILE)), None),
        models=tuple(below("models/*", MANIFEST_FILE) if models is None else models),
        simulations=tuple(
            below("simulations/*", SUMMARY_FILE) if simulations is None else simulations
        ),
        validation=validation or next(iter(below("validation", VERDICTS_FILE)), None),
        searches=tuple(below("*", SEARCH_FILE)),
    )
    if found == ReportInputs():
        raise DatasetError(
            "there is nothing to report", where=Path(root), cure="begin with: toolkit ingest LOGS"
        )
    return found


def read_json(path: Path, made_by: str) -> dict[str, Any]:
    """Read a JSON object; raise ``ModelError`` with the command that makes it again."""
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ModelError(f"unreadable: {error}", where=path, cure=f"run {made_by} again") from None
    if not isinstance(value, dict):
        raise ModelError("is no JSON object", where=path, cure=f"run {made_by} again")
    return value


@contextmanager
def reading(path: Path, made_by: str, whole: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield a JSON object; if the block finds it incomplete, raise ``ModelError``: damaged.

    ``whole`` is the path to name as damaged, if the block reads more than that file.
    """
    content = read_json(path, made_by)
    try:
        yield content
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise ModelError(
            f"damaged: {type(error).__name__}: {error}",
            where=whole or path,
            cure=f"run {made_by} again",
        ) from None
