"""``toolkit features``: computed here, by an older TVM, or brought in from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.common import BarProgress, DatasetDir, Json, command, err, out, print_json
from toolkit.errors import ToolkitError
from toolkit.workspace import Workspace

if TYPE_CHECKING:
    from toolkit.datasets import Dataset

ANSOR_STORE = "ansor-per-store"


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("features")(features)


@command
def features(
    dataset: DatasetDir = None,
    extractor: Annotated[
        str,
        typer.Option(
            "--extractor",
            help="knobs, primitives, per-store, ansor-per-store, or auto: each format's best.",
        ),
    ] = "auto",
    tvm_python: Annotated[
        str | None,
        typer.Option(help="Interpreter that has a TVM with Ansor, for ansor-per-store."),
    ] = None,
    workloads: Annotated[
        list[Path] | None,
        typer.Option(help="Python file that registers Ansor workloads; repeatable."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--from", help="Parquet or .npz of features made elsewhere, keyed by id."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of what --from brings in: recipes say stored:NAME.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute features and keep them in the dataset, or bring in those that others made.

    Example: toolkit features --extractor primitives
    """
    from toolkit.datasets import open_dataset

    data = open_dataset(dataset or Workspace().dataset)
    refused: dict[str, str] = {}
    if table is not None:
        results = [_imported(data, table, name)]
    elif extractor == ANSOR_STORE:
        result, refused = _by_older_tvm(data, tvm_python, workloads or [])
        results = [result]
    else:
        results = _computed(data, extractor)
    if as_json:
        print_json({"extractors": results, "refused_workloads": refused})
        return
    for result in results:
        out.print(
            f"{result['extractor']} v{result['version']}: {result['candidates']} candidates of "
            f"{result['tasks']} tasks, {len(result['columns'])} columns",
            highlight=False,
        )
        for key, what in (("unknown", "rows name nothing"), ("without", "candidates have no row")):
            if result.get(key):
                err.print(f"{result[key]:,} {what} in this dataset", style="yellow")
    if refused:
        first = next(iter(refused.items()))
        err.print(
            f"{len(refused)} workloads could not be rebuilt, {first[0]} for one: {first[1]}",
            style="yellow",
            highlight=False,
            markup=False,
        )


def _computed(data: Dataset, extractor: str) -> list[dict[str, Any]]:
    from toolkit.features import best_extractor_for, extract, extractor_named

    tasks = data.tasks()
    names: dict[str, list[str]] = {}
    if extractor == "auto":
        for task in tasks.values():
            names.setdefault(best_extractor_for(task).name, []).append(task.task_id)
    else:
        found = extractor_named(extractor)
        names[extractor] = [t.task_id for t in tasks.values() if found.supports(t)]
    return [
        extract(data, extractor_named(name), own, progress=BarProgress())
        for name, own in sorted(names.items())
    ]


def _by_older_tvm(
    data: Dataset, tvm_python: str | None, workloads: list[Path]
) -> tuple[dict[str, Any], dict[str, str]]:
    from toolkit.features import extract
    from toolkit.features.extractors.ansor_store import AnsorStoreExtractor

    if tvm_python is None:
        raise ToolkitError(
            f"{ANSOR_STORE} needs an interpreter that has a TVM with Ansor",
            cure="name it with --tvm-python, and the workloads with --workloads",
        )
    with AnsorStoreExtractor(tvm_python, workloads) as extractor:
        own = [t.task_id for t in data.tasks().values() if extractor.supports(t)]
        if not own:
            first = next(iter(extractor.refused.values()), "it holds no Ansor records")
            raise ToolkitError(
                f"no workload of the dataset could be rebuilt: {first}",
                where=data.path,
                cure="register them in a Python file: --workloads FILE",
            )
        result = extract(data, extractor, own, progress=BarProgress())
        result.update(tvm_version=extractor.tvm_version, crashes=extractor.crashes)
        return result, extractor.refused


def _imported(data: Dataset, table: Path, name: str | None) -> dict[str, Any]:
    from toolkit.features.extractors.stored import import_features

    return import_features(data, table, name or table.stem, progress=BarProgress())
