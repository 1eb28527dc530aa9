"""``toolkit features``: computed here, computed by an older TVM, or imported."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from toolkit.cli import common
from toolkit.cli.tables import err, note, say
from toolkit.cluster import Cluster
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from toolkit.datasets import Dataset

ANSOR_STORE = "ansor-per-store"


def features(
    dataset: common.DatasetDir = None,
    extractor: Annotated[
        str,
        Option(
            help="knobs, primitives, relations, parameters, per-store, per-statement, "
            "ansor-per-store, or auto: each format's best."
        ),
    ] = "auto",
    tvm_python: Annotated[
        str | None, Option(help="Interpreter that has a TVM with Ansor, for ansor-per-store.")
    ] = None,
    workloads: common.AnsorWorkloads = None,
    table: Annotated[
        Path | None,
        Option("--from", help="Parquet or .npz of features made elsewhere, keyed by id."),
    ] = None,
    name: Annotated[
        str | None, Option(help="Name of the --from features; recipes use stored:NAME.")
    ] = None,
    cluster: common.ClusterPlace = None,
    as_json: common.Json = False,
) -> None:
    """Compute features and store them in the dataset, or import features made elsewhere.

    Example: toolkit features --extractor primitives
    """
    data = common.opened_dataset(dataset)
    refused: dict[str, str] = {}
    results: list[Mapping[str, Any]]
    if table is not None:
        from toolkit.features.extractors.stored import import_features

        results = [import_features(data, table, name or table.stem, progress=common.BarProgress())]
    elif extractor == ANSOR_STORE:
        result, refused = _by_older_tvm(data, tvm_python, workloads or [])
        results = [result]
    else:
        results = _computed(data, extractor, cluster)
    common.answer({"extractors": results, "refused_workloads": refused}, as_json, _show)


def _show(found: Mapping[str, Any]) -> None:
    for result in found["extractors"]:
        say(
            f"{result['extractor']} v{result['version']}: {result['candidates']} candidates of "
            f"{result['tasks']} tasks, {len(result['columns'])} columns"
        )
        for key, what in (
            ("unknown", "rows match no candidate of the dataset"),
            ("without", "candidates of the dataset have no row"),
        ):
            if result.get(key):
                note(f"{result[key]:,} {what}", "yellow")
    refused = found["refused_workloads"]
    for workload, why in list(refused.items())[:1]:
        err.print(
            f"{len(refused)} workloads could not be rebuilt, for example {workload}: {why}",
            style="yellow",
            highlight=False,
        )


def _computed(data: Dataset, extractor: str, place: str | None) -> list[Mapping[str, Any]]:
    from toolkit.features import best_extractor_for, extract, extractor_named

    tasks = data.tasks()
    names: dict[str, list[str]] = {}
    if extractor == "auto":
        for task in tasks.values():
            names.setdefault(best_extractor_for(task).name, []).append(task.task_id)
    else:
        found = extractor_named(extractor)
        names[extractor] = [t.task_id for t in tasks.values() if found.supports(t)]
    progress = common.BarProgress()
    with nullcontext() if place is None else Cluster(place, progress) as cluster:
        return [
            extract(data, extractor_named(name), own, cluster=cluster, progress=progress)
            for name, own in sorted(names.items())
        ]


def _by_older_tvm(
    data: Dataset, tvm_python: str | None, workloads: list[Path]
) -> tuple[Mapping[str, Any], dict[str, str]]:
    from toolkit.features import extract
    from toolkit.features.extractors.ansor_store import AnsorStoreExtractor

    if tvm_python is None:
        raise ToolkitError(
            f"{ANSOR_STORE} needs an interpreter that has a TVM with Ansor",
            cure="give it with --tvm-python, and the workloads with --workloads",
        )
    with AnsorStoreExtractor(tvm_python, workloads) as extractor:
        own = [t.task_id for t in data.tasks().values() if extractor.supports(t)]
        if not own:
            first = next(iter(extractor.refused.values()), "it holds no Ansor records")
            raise ToolkitError(
                f"no workload of the dataset could be rebuilt: {first}",
                where=data.path,
                cure="register the workloads in a Python file: --workloads FILE",
            )
        result = extract(data, extractor, own, progress=common.BarProgress())
        about = {"tvm_version": extractor.tvm_version, "crashes": extractor.crashes}
        return {**result, **about}, extractor.refused
