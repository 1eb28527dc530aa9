"""What the labels of sources say: which network a log is of, and how often it runs each task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson
import polars as pl

NETWORK_LABELS = ("network", "model")
"""Names of a source's labels that say which network its tasks belong to; the first counts."""

Labels = Mapping[str, Mapping[str, str]]


def source_labels(sources: pl.DataFrame) -> dict[str, dict[str, str]]:
    """Labels of each source (``Dataset.sources``), by id."""
    return {
        source_id: {key: str(value) for key, value in orjson.loads(labels).items()}
        if labels
        else {}
        for source_id, labels in sources.select("source_id", "labels").iter_rows()
    }


def network_weights(
    pairs: Iterable[tuple[str, str]], labels: Labels, keys: Sequence[str] = NETWORK_LABELS
) -> dict[str, dict[str, float]]:
    """How often each network runs each task, by network and task.

    It is the largest number of sources that any one combination of the other labels has for the
    task: a tuner's log of a network has one file a layer, and layers that are alike count each.

    Parameters
    ----------
    pairs
        (task id, source id), each once.
    labels
        Of each source; those without any of ``keys`` are left out.
    """
    counts: dict[tuple[str, str], dict[bytes, int]] = {}
    for task_id, source_id in sorted(pairs):
        own = labels.get(source_id, {})
        key = next((key for key in keys if key in own), None)
        if key is None:
            continue
        rest = {name: value for name, value in own.items() if name != key}
        others = orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)
        by_others = counts.setdefault((own[key], task_id), {})
        by_others[others] = by_others.get(others, 0) + 1
    found: dict[str, dict[str, float]] = {}
    for (network, task_id), by_others in sorted(counts.items()):
        found.setdefault(network, {})[task_id] = float(max(by_others.values()))
    return found
