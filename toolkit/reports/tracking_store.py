"""Where MLflow keeps runs: a folder, a database or a server, used through MLflow's client.

Global settings of MLflow are not changed: no tracking URI is set, nothing is logged automatically.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import ToolkitError, first_line

EXPERIMENT = "tvm-tuning-toolkit"
"""The experiment where none is named, here or in ``MLFLOW_EXPERIMENT_NAME``."""

ANSWER_S = 10.0
"""Seconds that a server may take to say anything. MLflow itself would try for minutes."""

_INSTALL = "pip install 'tvm-tuning-toolkit[mlflow]'"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class TrackingStore:
    """An experiment of a tracking store; ``client`` is an ``mlflow.MlflowClient``."""

    client: Any
    uri: str
    experiment_id: str


def open_store(place: str | Path | None = None, experiment: str | None = None) -> TrackingStore:
    """Open the experiment of a tracking store; create it if it does not exist.

    ``place`` is a folder (it gets an SQLite file and the artifacts), or a tracking URI; by default
    what ``MLFLOW_TRACKING_URI`` says. ``experiment`` is its name; by default what
    ``MLFLOW_EXPERIMENT_NAME`` says, or ``EXPERIMENT``.

    Raises ``ToolkitError`` when MLflow is not installed, no place is named, or the store cannot be
    used.
    """
    given = place or os.environ.get("MLFLOW_TRACKING_URI")
    if not given:
        raise ToolkitError(
            "MLflow has no store: MLFLOW_TRACKING_URI is not set",
            cure="set it, or give a folder or a tracking URI with --mlflow",
        )
    name = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        missing = error.name or "mlflow"
        raise ToolkitError(f"{missing} is not installed", cure=_INSTALL) from None
    uri, artifacts = _uri(given)
    with _told(uri):
        check_answer(uri)
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(name)
        if found is None:
            number = client.create_experiment(name, artifact_location=artifacts)
        elif found.lifecycle_stage != "active":
            raise ToolkitError(
                f"the MLflow experiment {name!r} was deleted",
                where=uri,
                cure="restore it, or name another in MLFLOW_EXPERIMENT_NAME",
            )
        else:
            number = found.experiment_id
    return TrackingStore(client, uri, number)


@contextmanager
def _told(uri: str) -> Iterator[None]:
    """Raise errors of MLflow and its libraries as one line with a cure."""
    try:
        yield
    except ToolkitError:
        raise
    except ImportError as error:
        raise ToolkitError(f"{error.name} is not installed", cure=_INSTALL) from None
    except Exception as error:  # MLflow's, SQLAlchemy's, those of a store's plug-in
        raise ToolkitError(
            f"MLflow cannot be used: {first_line(error)}",
            where=uri,
            cure="start a server (mlflow server), or keep runs in a folder (--mlflow FOLDER)",
        ) from None


def _uri(place: str | Path) -> tuple[str, str | None]:
    """Tracking URI of a place, and where artifacts go (``None``: where MLflow puts them)."""
    text = str(place)
    if not isinstance(place, Path) and (_SCHEME.match(text) or text == "databricks"):
        return text, None
    folder = Path(text).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise ToolkitError(
            "it is a file where a folder is needed",
            where=folder,
            cure=f"if it is an SQLite file, give sqlite:///{text}",
        )
    if any(folder.glob("*/meta.yaml")):
        # MLflow's older store of plain files: MLflow itself says whether it still supports it.
        return folder.as_uri(), None
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()


def check_answer(uri: str) -> None:
    """Raise ``ConnectionError`` if a store is a server that does not answer."""
    if not uri.startswith(("http://", "https://")):
        return
    import requests

    try:
        # Any answer is enough: if the server refuses, MLflow's own call says so.
        requests.get(uri, timeout=ANSWER_S, stream=True).close()
    except requests.exceptions.SSLError:
        pass
    except (requests.ConnectionError, requests.Timeout):
        raise ConnectionError("no server answers there") from None
