"""The report as one plain dictionary: tests check it, figures and HTML are drawn from it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from toolkit import __version__
from toolkit.reports.headline import headline
from toolkit.reports.page.inputs import ReportInputs
from toolkit.reports.sections.dataset import dataset_section
from toolkit.reports.sections.live import live_section
from toolkit.reports.sections.model import model_sections
from toolkit.reports.sections.simulation import simulation_sections
from toolkit.schema import SCHEMA_VERSION

SUMMARY_VERSION = 1
LIBRARIES = (
    "apache-tvm",
    "apache-tvm-ffi",
    "lightgbm",
    "xgboost",
    "scikit-learn",
    "polars",
    "pyarrow",
    "numpy",
    "scipy",
)


def report_summary(
    inputs: ReportInputs, *, title: str = "Tuning report", generated: str | None = None
) -> dict[str, Any]:
    """Summarise everything that is there.

    Parameters
    ----------
    inputs
        Folders (``find_inputs``).
    generated
        Date to print; none by default, so that equal inputs give equal bytes.

    Returns
    -------
    JSON-ready values. Keys: ``headline`` (title, findings, tiles, caveats), ``dataset``,
    ``throughput``, ``mutation``, ``validity``, ``simulations`` (lists, one entry a folder),
    ``live``, ``missing`` (what is not there, and the command that makes it) and ``provenance``.

    Raises
    ------
    ToolkitError
        When a folder cannot be read.
    """
    dataset = dataset_section(inputs.dataset)
    models = model_sections(inputs.models)
    simulations = simulation_sections(inputs.simulations)
    live = live_section(inputs.validation)
    return {
        "summary_version": SUMMARY_VERSION,
        "title": title,
        "generated": generated,
        "headline": headline(dataset, models["throughput"], models["mutation"], simulations, live),
        "dataset": dataset,
        "throughput": models["throughput"],
        "mutation": models["mutation"],
        "validity": models["validity"],
        "simulations": simulations,
        "live": live,
        "missing": _missing(dataset, models, simulations, live),
        "provenance": _provenance(dataset, models, simulations, live),
    }


def _missing(
    dataset: Mapping[str, Any],
    models: Mapping[str, Sequence[Any]],
    simulations: Sequence[Any],
    live: Mapping[str, Any],
) -> dict[str, str]:
    """Return sections that have nothing to show, and the command that would change it."""
    wanted = {
        "dataset": (dataset["missing"] is None, "toolkit ingest LOGS"),
        "throughput": (bool(models["throughput"]), "toolkit train throughput"),
        "mutation": (bool(models["mutation"]), "toolkit train mutation"),
        "simulations": (bool(simulations), "toolkit simulate"),
        "live": (live["missing"] is None, "toolkit validate"),
    }
    return {name: command for name, (present, command) in wanted.items() if not present}


def _provenance(
    dataset: Mapping[str, Any],
    models: Mapping[str, Sequence[Mapping[str, Any]]],
    simulations: Sequence[Mapping[str, Any]],
    live: Mapping[str, Any],
) -> dict[str, Any]:
    """Versions, hashes and seeds of everything that entered."""
    parts = []
    if dataset["missing"] is None:
        parts.append(_part("dataset", dataset["path"], dataset["fingerprint"]))
    for kind, found in models.items():
        for model in found:
            parts.append(
                _part(f"{kind} model", model["path"], model["dataset_fingerprint"], model["seed"])
            )
    for one in simulations:
        seeds = f"0 to {one['seeds'] - 1}"
        parts.append(_part(f"replay {one['name']}", one["path"], one["dataset_fingerprint"], seeds))
    if live["missing"] is None:
        seed = live["settings"].get("seed")
        parts.append(_part("live verdicts", live["path"], live["dataset_fingerprint"], seed))
    return {
        "toolkit": __version__,
        "schema_version": SCHEMA_VERSION,
        "python": platform.python_version(),
        "libraries": {name: known for name in LIBRARIES if (known := _version(name))},
        "parts": parts,
    }


def _part(
    what: str, path: str, dataset_fingerprint: str | None, seed: int | str | None = None
) -> dict[str, Any]:
    return {"what": what, "path": path, "dataset": dataset_fingerprint, "seed": seed}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
