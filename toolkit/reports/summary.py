"""The report as one plain dictionary: tests check it, figures and HTML are drawn from it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from toolkit import __version__
from toolkit.errors import ModelError
from toolkit.reports.headline import headline
from toolkit.reports.page.inputs import ReportInputs, Section
from toolkit.reports.sections.comparison import comparison_section
from toolkit.reports.sections.dataset import dataset_section
from toolkit.reports.sections.live import live_section
from toolkit.reports.sections.mutation import mutation_section
from toolkit.reports.sections.search import search_sections
from toolkit.reports.sections.strategies import simulation_sections
from toolkit.reports.sections.throughput import throughput_section
from toolkit.reports.sections.validity import validity_section
from toolkit.schema import SCHEMA_VERSION
from toolkit.training.trained.store import read_manifest

SUMMARY_VERSION = 1
LIBRARIES = (
    *("apache-tvm", "apache-tvm-ffi", "lightgbm", "xgboost", "scikit-learn"),
    *("polars", "pyarrow", "numpy", "scipy"),
)
MODELS = {
    "throughput": throughput_section,
    "mutation": mutation_section,
    "validity": validity_section,
}


def report_summary(
    inputs: ReportInputs,
    *,
    title: str = "Tuning report",
    generated: str | None = None,
    peaks: Mapping[str | None, float] | None = None,
    compare: tuple[str, ReportInputs] | None = None,
) -> dict[str, Any]:
    """Summarise all inputs (``find_inputs``) in JSON-ready values.

    ``generated`` is a date to print; without one equal inputs give equal bytes. ``peaks`` are
    the peak GFLOP/s of machines, by name (``None`` names the only one). ``compare`` is
    another workspace to compare with: its name and its folders.

    Keys: ``headline`` (title, findings, tiles, caveats), ``dataset``, ``throughput``, ``mutation``,
    ``validity``, ``simulations`` (lists, one entry a folder), ``searches`` (a list), ``live``,
    ``comparison`` (``None`` without ``compare``), ``missing`` (the missing parts, and the commands
    that make them) and ``provenance``.

    Raises ``ToolkitError`` when a folder cannot be read.
    """
    dataset = dataset_section(inputs.dataset, peaks)
    models = _models(inputs.models)
    simulations = simulation_sections(inputs.simulations)
    live = live_section(inputs.validation)
    commands = {
        "dataset": dataset["missing"],
        "throughput": None if models["throughput"] else "toolkit train throughput",
        "mutation": None if models["mutation"] else "toolkit train mutation",
        "simulations": None if simulations else "toolkit simulate",
        "live": live["missing"],
    }
    summary = {
        "summary_version": SUMMARY_VERSION,
        "title": title,
        "generated": generated,
        "headline": headline(dataset, models["throughput"], models["mutation"], simulations, live),
        "dataset": dataset,
        **models,
        "simulations": simulations,
        "searches": search_sections(inputs.searches),
        "live": live,
        "missing": {name: command for name, command in commands.items() if command},
        "provenance": {
            "toolkit": __version__,
            "schema_version": SCHEMA_VERSION,
            "python": platform.python_version(),
            "libraries": {name: known for name in LIBRARIES if (known := _version(name))},
            "parts": _parts(dataset, models, simulations, live),
        },
        "comparison": None,
    }
    if compare is not None:
        other, folders = compare
        summary["comparison"] = comparison_section(summary, report_summary(folders), other)
    return summary


def _models(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """Summarise models, sorted by kind."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in MODELS}
    for folder in folders:
        manifest = read_manifest(folder)
        kind = manifest["kind"]
        if kind not in MODELS:
            shown = f"leave it out; a report shows models of: {', '.join(MODELS)}"
            raise ModelError(f"unknown model of kind {kind!r}", where=folder, cure=shown)
        found[kind].append(MODELS[kind](folder, manifest))
    return found


def _parts(
    dataset: Section,
    models: Mapping[str, Sequence[Section]],
    simulations: Sequence[Section],
    live: Section,
) -> list[dict[str, Any]]:
    """Paths, hashes and seeds of all inputs."""
    parts: list[tuple[Any, ...]] = []
    if dataset["missing"] is None:
        parts.append(("dataset", dataset["path"], dataset["fingerprint"], None))
    for kind, found in models.items():
        for one in found:
            parts.append((f"{kind} model", one["path"], one["dataset_fingerprint"], one["seed"]))
    for one in simulations:
        seeds = f"0 to {one['seeds'] - 1}"
        parts.append((f"replay {one['name']}", one["path"], one["dataset_fingerprint"], seeds))
    if live["missing"] is None:
        seed = live["settings"].get("seed")
        parts.append(("live verdicts", live["path"], live["dataset_fingerprint"], seed))
    return [dict(zip(("what", "path", "dataset", "seed"), part, strict=True)) for part in parts]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
