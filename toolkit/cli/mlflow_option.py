"""``--mlflow``: what a command's run tells MLflow, or nothing where it was not asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from toolkit.progress import Progress

MlflowPlace = Annotated[
    str | None,
    Option(
        "--mlflow",
        metavar="PLACE",
        help="Log the run with MLflow into this folder or tracking URI (sqlite:///runs.db, "
        "http://host:5000); env: what MLFLOW_TRACKING_URI says.",
    ),
]

FROM_ENVIRONMENT = "env"


@dataclass(frozen=True)
class Told:
    """What the work is given (``progress``), and what its result is given to (``log``)."""

    progress: Progress
    log: Callable[[Mapping[str, Any]], None]


@contextmanager
def told_training(
    place: str | None,
    dataset: Any,
    recipe: Any,
    out: Path,
    params: Mapping[str, Any],
    progress: Progress,
) -> Iterator[Told]:
    """Open the MLflow run of a training, if one was asked for."""
    if place is None:
        yield Told(progress, lambda result: None)
        return
    _quiet_mlflow()
    from toolkit.reports.tracked import log_training, track_training

    with track_training(
        dataset, recipe, out, place=_named(place), params=params, progress=progress
    ) as run:
        yield Told(run.progress, lambda result: log_training(run, result, out))


@contextmanager
def told_tuning(
    place: str | None, out: Path, params: Mapping[str, Any], progress: Progress
) -> Iterator[Told]:
    """Open the MLflow run of a search, if one was asked for."""
    if place is None:
        yield Told(progress, lambda result: None)
        return
    _quiet_mlflow()
    from toolkit.reports.tracked import log_tuning, track_tuning

    with track_tuning(out, place=_named(place), params=params, progress=progress) as run:
        yield Told(run.progress, lambda result: log_tuning(run, result, out))


def _named(place: str) -> str | None:
    return None if place == FROM_ENVIRONMENT else place


def _quiet_mlflow() -> None:
    """Keep MLflow from telling its makers, unless the user lets it, and from standard output.

    This is a process of the toolkit's own. From Python nothing is set: it is another's.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # With a server it prints addresses, where the JSON goes.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
