"""What a validation says of a task, and how it is kept: ``verdicts.json``."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.confirm.blocks import Confirmation
from toolkit.live.confirm.rules import INCUMBENT, Rules, overall
from toolkit.live.measure.machine import describe_machine
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import no_verdict, slowed_by, slowed_warnings
from toolkit.records import Task

AGAIN = "validate again when it is quiet"


@dataclass(frozen=True, slots=True)
class ValidateSettings:
    """What to validate and how.

    Attributes
    ----------
    top
        Recorded candidates rebuilt and screened a task, best first.
    challengers
        How many of the fastest go into the confirmation against the incumbent.
    seconds
        Time a task may take, refinement and confirmation together.
    strategy
        Search strategy of the refinement (any of ``toolkit.search``).
    """

    top: int = 5
    challengers: int = 2
    seconds: float = 60.0
    strategy: str = "evolutionary"
    seed: int = 0
    rules: Rules = field(default_factory=Rules)


@dataclass
class Looked:
    """What came before the confirmation of a task.

    ``incumbent`` says what it is, ``recorded`` are the ids of rebuilt recorded candidates,
    ``refined`` counts the trials of the search, ``read_s`` is what either read, in seconds by
    candidate id.
    """

    incumbent: str
    incumbent_id: str | None
    screened: int
    refined: int
    rejected: list[dict[str, str]]
    recorded: set[str]
    read_s: dict[str, float]
    started: float


def verdict_of(task: Task, target: str, result: Confirmation, looked: Looked) -> dict[str, Any]:
    """One task's verdict (JSON-ready); raise ``LiveError`` when nothing could be measured.

    Blocks that were read on a much slower machine than the search knew decide nothing: the verdict
    is then "undecided", ``reason`` says why, and there is no ratio.
    """
    if not result.readings[INCUMBENT]:
        raise LiveError(
            f"no challenger of task {task.task_id} could be measured",
            cure="see 'rejected' in verdicts.json; a longer --seconds refines more",
        )
    judgement = overall(result.judgements)
    latency = {
        arm: statistics.geometric_mean(values) for arm, values in result.readings.items() if values
    }
    by_id = {looked.incumbent_id or "": result.readings[INCUMBENT], **result.readings}
    slower = slowed_by(looked.read_s, by_id)
    nothing = no_verdict(slower)
    base = {
        "task_id": task.task_id,
        "name": task.workload,
        "arguments": task.arguments,
        "target": target,
        "incumbent": looked.incumbent,
        "incumbent_id": looked.incumbent_id,
        "incumbent_latency_s": latency[INCUMBENT],
        "screened": looked.screened,
        "refined": looked.refined,
        "rejected": looked.rejected,
        "dropped": result.dropped,
        "readings_s": result.readings,
        "slowed_by": slower,
        "reason": nothing,
        "seconds": round(time.perf_counter() - looked.started, 2),
    }
    if nothing is not None or judgement is None:
        verdict = "not better" if nothing is None else "undecided"
        return {**base, "verdict": verdict, "ratio": None, "interval": None}
    return {
        **base,
        "verdict": judgement.verdict,
        "ratio": judgement.ratio,
        "interval": _finite(*judgement.interval),
        "aa_interval": _finite(1.0 / judgement.floor, judgement.floor),
        "confidence": judgement.confidence,
        "blocks": judgement.blocks,
        "winner_id": judgement.challenger,
        "winner_latency_s": latency[judgement.challenger],
        "winner_from": "record" if judgement.challenger in looked.recorded else "refinement",
        "challengers": [asdict(j) for j in result.judgements],
    }


def _finite(low: float, high: float) -> list[float] | None:
    """An interval, or ``None`` when one block gave none."""
    return [low, high] if 0.0 < low <= high < math.inf else None


def write_verdicts(
    out: Path,
    verdicts: Sequence[dict[str, Any]],
    *,
    protocol: Protocol,
    settings: ValidateSettings,
    dataset: str,
    warnings: Sequence[str],
    started: float,
) -> dict[str, Any]:
    """Write ``verdicts.json`` in one piece; return what it holds."""
    slowed = [w for v in verdicts for w in slowed_warnings(v["name"], v["slowed_by"], AGAIN)]
    result = {
        "verdicts": list(verdicts),
        "better": sum(v["verdict"] == "better" for v in verdicts),
        "not_better": sum(v["verdict"] == "not better" for v in verdicts),
        "undecided": sum(v["verdict"] == "undecided" for v in verdicts),
        "warnings": [*warnings, *slowed],
        "machine": describe_machine(),
        "protocol": protocol.to_dict(),
        "settings": asdict(settings),
        "dataset": dataset,
        "seconds": round(time.perf_counter() - started, 2),
    }
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "verdicts.json", orjson.dumps(result, option=orjson.OPT_INDENT_2))
    return result
