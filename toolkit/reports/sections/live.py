"""The report's section on the device: which winners were proven, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.datasets import task_name
from toolkit.records import Task
from toolkit.reports.page.inputs import VERDICTS_FILE, complete, read_json

KEPT = (
    "task_id",
    "verdict",
    "reason",
    "ratio",
    "interval",
    "aa_interval",
    "confidence",
    "blocks",
    "incumbent",
    "incumbent_latency_s",
    "winner_latency_s",
    "winner_from",
    "winner_id",
    "screened",
    "refined",
    "seconds",
    "target",
)


def live_section(folder: Path | None) -> dict[str, Any]:
    """Summarise the verdicts of ``toolkit validate``.

    ``ratio`` is the winner's latency over the incumbent's (below 1 is faster) with its confidence
    interval; ``aa_interval`` is what the incumbent shows against itself.
    """
    if folder is None:
        return {"missing": "toolkit validate", "verdicts": []}
    path = folder / VERDICTS_FILE
    with complete(path, "toolkit validate"):
        content = read_json(path, "toolkit validate")
        verdicts = content.get("verdicts", [])
        return {
            "missing": None,
            "path": str(folder),
            "verdicts": [_verdict(verdict) for verdict in verdicts],
            "better": sum(v["verdict"] == "better" for v in verdicts),
            "not_better": sum(v["verdict"] == "not better" for v in verdicts),
            "undecided": sum(v["verdict"] == "undecided" for v in verdicts),
            "warnings": content.get("warnings", []),
            "machine": content.get("machine", {}),
            "protocol": content.get("protocol", {}),
            "settings": content.get("settings", {}),
            "dataset_fingerprint": content.get("dataset"),
            "seconds": content.get("seconds"),
        }


def _verdict(verdict: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: verdict.get(key) for key in KEPT}
    name = verdict.get("name") or verdict["task_id"]
    if verdict.get("arguments") is not None and ":" not in name:
        task = Task(verdict["task_id"], "metaschedule", name, verdict["arguments"], "", "")
        name = task_name(task)
    rejected = verdict.get("rejected") or []
    dropped = verdict.get("dropped") or {}
    return {**kept, "name": name, "rejected": len(rejected), "dropped": len(dropped)}
