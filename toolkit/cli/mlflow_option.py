"""``--mlflow``: logs a command's run with MLflow, if the option is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from typer import Option

from toolkit.progress import Progress

MlflowPlace = Annotated[
    str | None,
    Option(
        "--mlflow",
        metavar="PLACE",
        help="Log the run with MLflow into this folder or tracking URI (sqlite:///runs.db, "
        "http://host:5000); env: from MLFLOW_TRACKING_URI.",
    ),
]


@contextmanager
def told(
    place: str | None,
    work: Literal["training", "tuning"],
    *what: Any,
    params: Mapping[str, Any],
    progress: Progress,
) -> Iterator[tuple[Progress, Callable[[Mapping[str, Any]], None]]]:
    """Open the MLflow run of a training or a search, if ``place`` is given.

    ``what``: for a training the dataset and the recipe, and for both the output folder, last.
    Yields the progress to pass to the work, and a function that takes its result.
    """
    if place is None:
        yield progress, lambda result: None
        return
    # MLflow sends no telemetry unless the user allows it. Set here only, since this process is the
    # toolkit's own; in a user's Python process nothing is set.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # With a server, MLflow would print addresses to standard output, where the JSON goes.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    from toolkit.reports import tracked

    track: Any = tracked.track_training if work == "training" else tracked.track_tuning
    log: Any = tracked.log_training if work == "training" else tracked.log_tuning
    named = None if place == "env" else place
    with track(*what, place=named, params=params, progress=progress) as run:
        yield run.progress, lambda result: log(run, result, what[-1])
