"""What is logged to MLflow of a training and of a search.

A training is one run, also when it is interrupted and started again. A search is one run, together
with later searches in its folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from toolkit.datasets import Dataset
from toolkit.progress import SILENT, Progress
from toolkit.records import content_id
from toolkit.reports.tracking import MlflowRun, mlflow_run
from toolkit.reports.tracking_names import figures
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.trained.store import MANIFEST, versions

COLLECTION_FILE = "collection.json"
"""File in a search's folder: how it was measured, and on which machine."""


def track_training(
    dataset: Dataset,
    recipe: Recipe,
    out: str | Path,
    *,
    place: str | Path | None = None,
    experiment: str | None = None,
    params: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> AbstractContextManager[MlflowRun]:
    """Open the MLflow run of a training; give its ``progress`` to the training.

    ``params`` are logged in addition to the recipe's fields. Raises ``ToolkitError`` when MLflow
    cannot be used (``mlflow_run``).
    """
    folder = Path(out)
    fingerprint = dataset.fingerprint()
    fields = recipe.model_dump(mode="json", by_alias=True)
    about = {"recipe": fields, "dataset": fingerprint, "versions": versions()}

    def tags() -> dict[str, Any]:
        machines = {task.machine for task in dataset.tasks().values() if task.machine}
        return {
            "kind": f"train {recipe.kind}",
            "out": folder.resolve(),
            "dataset": dataset.path,
            "dataset_fingerprint": fingerprint,
            "machine": ", ".join(sorted(machines)) or "unknown",
            **_version_tags(),
        }

    return mlflow_run(
        folder,
        name=f"train {recipe.kind}",
        place=place,
        experiment=experiment,
        key=content_id(orjson.dumps(about, option=orjson.OPT_SORT_KEYS)),
        params={"recipe": fields, **(params or {})},
        tags=tags,
        once=True,
        progress=progress,
    )


def log_training(run: MlflowRun, result: Mapping[str, Any], out: str | Path) -> None:
    """Log a training's result: metrics, the mean of each over the tasks of a fold, the manifest.

    A fold's means are the metrics ``fold/...``; their step is the fold's number.
    """
    folder = Path(out)
    run.result(result, files=[folder / MANIFEST, folder / "recipe.toml"])
    for fold, means in sorted(_by_fold(folder / MANIFEST, result).items()):
        run.metrics({f"fold/{name}": value for name, value in means.items()}, fold)


def track_tuning(
    out: str | Path,
    *,
    place: str | Path | None = None,
    experiment: str | None = None,
    params: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> AbstractContextManager[MlflowRun]:
    """Open the MLflow run of a search; give its ``progress`` to ``tune``.

    Raises ``ToolkitError`` when MLflow cannot be used (``mlflow_run``).
    """
    folder = Path(out)

    def tags() -> dict[str, Any]:
        about = _collection(folder)
        fingerprint = about.get("machine_fingerprint") or {}
        hardware = about.get("hardware") or {}
        return {
            "kind": "tune",
            "out": folder.resolve(),
            "machine": about.get("machine") or "unknown",
            **{f"machine.{key}": value for key, value in hardware.items()},
            "machine_fingerprint": fingerprint.pop("id", "unknown"),
            **{f"machine_fingerprint.{key}": value for key, value in fingerprint.items()},
            **_version_tags(),
        }

    where: dict[str, Any] = {"place": place, "experiment": experiment, "progress": progress}
    return mlflow_run(folder, name="tune", params=params, tags=tags, **where)


def log_tuning(run: MlflowRun, result: Mapping[str, Any], out: str | Path) -> None:
    """Log a search's result: its figures (``result/...``) and each task's best after the heats."""
    rows = result["tasks"]
    best = {row["name"]: row["best_latency_s"] for row in rows if row["best_latency_s"]}
    files = [Path(out) / name for name in ("tune.json", "tuned.json", COLLECTION_FILE)]
    run.result(result, files=files, prefix="result/")
    run.metrics({f"result/best_latency_s/{name}": value for name, value in best.items()})


def _collection(folder: Path) -> dict[str, Any]:
    try:
        about = orjson.loads((folder / COLLECTION_FILE).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return about if isinstance(about, dict) else {}


def _by_fold(manifest: Path, result: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Mean of each metric over the judged tasks of each fold."""
    folds = orjson.loads(manifest.read_bytes()).get("folds", {})
    values: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in result["tasks"]:
        if row.get("task_id") in folds:
            for name, value in figures(row).items():
                values[int(folds[row["task_id"]])][name].append(value)
    return {
        fold: {name: sum(found) / len(found) for name, found in named.items()}
        for fold, named in values.items()
    }


def _version_tags() -> dict[str, str]:
    known = versions()
    for name in ("apache-tvm", "mlflow-skinny"):
        with suppress(PackageNotFoundError):
            known[name] = version(name)
    return {f"version.{name}": value for name, value in known.items()}
