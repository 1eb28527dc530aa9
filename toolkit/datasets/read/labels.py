"""Labels of sources: which network a log belongs to, and how often a network runs each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from toolkit.records import canonical_json

NETWORK_LABELS = ("network", "model")
"""Labels of a source that name the network of its tasks; the first one found counts."""


def network_weights(
    pairs: Iterable[tuple[str, str]],
    labels: Mapping[str, Mapping[str, str]],
    keys: Sequence[str] = NETWORK_LABELS,
) -> dict[str, dict[str, float]]:
    """Return how often each network runs each task, by network and task.

    It is the largest number of the task's sources that have the same other labels: a tuner's log of
    a network has one file per layer, so equal layers are several files of one task.

    Parameters
    ----------
    pairs
        (task id, source id), each once.
    labels
        Labels of each source; sources without any of ``keys`` are left out.
    """
    counts: Counter[tuple[str, str, bytes]] = Counter()
    for task_id, source_id in pairs:
        others = dict(labels.get(source_id, {}))
        key = next((key for key in keys if key in others), None)
        if key is not None:
            network = others.pop(key)
            counts[network, task_id, canonical_json(others)] += 1
    found: dict[str, dict[str, float]] = {}
    for (network, task_id, _), count in sorted(counts.items()):
        weights = found.setdefault(network, {})
        weights[task_id] = max(weights.get(task_id, 0.0), float(count))
    return found
