"""Measure a task's arms in blocks until the rules allow a stop; state what the blocks prove.

Each arm of a block has a fresh process with a fresh build (``toolkit.live.measure.turns``).
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit.errors import LiveError
from toolkit.live.confirm.rules import (
    INCUMBENT,
    TWIN,
    Judgement,
    Rules,
    Verdict,
    judge,
    may_stop,
    overall,
)
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import no_verdict, slowed_by
from toolkit.live.measure.turns import OpenDevice, read_block, same_place
from toolkit.progress import Step
from toolkit.records import Task
from toolkit.results import Result


@dataclass(frozen=True, slots=True)
class ValidateSettings:
    """What to validate and how.

    ``top`` recorded candidates of a task are screened. The ``challengers`` fastest programs are
    confirmed. ``strategy`` (any of ``toolkit.search``) refines. ``seconds`` is the time for one
    task, all steps together.
    """

    top: int = 5
    challengers: int = 2
    seconds: float = 60.0
    strategy: str = "evolutionary"
    seed: int = 0
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, repr=False)
class TaskVerdict(Result):
    """The verdict on one task.

    Attributes
    ----------
    incumbent, incumbent_id, incumbent_latency_s
        Description, candidate id (``None``: the unscheduled program), and seconds in the blocks.
    screened, refined
        Number of rebuilt recorded candidates, and number of trials of the search.
    rejected, dropped
        What failed before the blocks and during the blocks, with the reason.
    readings_s
        Seconds by arm, one value for each block.
    slowed_by, reason
        Latency in the blocks over the earlier latency, and why that is too large for a verdict
        (``None``: it is not).
    ratio, interval, aa_interval
        Latency over the incumbent's (below 1 is faster), its interval (``None``: only one block),
        and the range around 1 of the incumbent's two arms. These and the fields below are set
        only if a challenger was judged.
    winner_from
        ``record`` or ``refinement``.
    """

    task_id: str
    name: str
    arguments: Any
    target: str
    incumbent: str
    incumbent_id: str | None
    incumbent_latency_s: float
    screened: int
    refined: int
    rejected: list[dict[str, str]]
    dropped: dict[str, str]
    readings_s: dict[str, list[float]]
    slowed_by: float | None
    reason: str | None
    seconds: float
    verdict: Verdict
    ratio: float | None
    interval: list[float] | None
    aa_interval: list[float] | None = None
    confidence: float | None = None
    blocks: int | None = None
    winner_id: str | None = None
    winner_latency_s: float | None = None
    winner_from: str | None = None
    challengers: list[Judgement] | None = None


@dataclass
class Screening:
    """What was done for a task before the confirmation.

    ``screened`` are rebuilt recorded candidates and ``refined`` candidates of the search: id and
    measured seconds (``None``: it failed). ``challengers`` are programs by candidate id.
    """

    started: float
    incumbent: str
    incumbent_id: str | None
    program: Program
    challengers: dict[str, Program]
    screened: list[tuple[str, float | None]]
    rejected: list[dict[str, str]]
    refined: list[tuple[str, float | None]] = field(default_factory=list)


@dataclass
class Confirmation:
    """Seconds by arm in block order, the judgements, and dropped arms with the reason."""

    readings: dict[str, list[float]] = field(default_factory=dict)
    judgements: list[Judgement] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)


def confirm(
    incumbent: Program,
    challengers: dict[str, Program],
    *,
    target: str,
    protocol: Protocol,
    rules: Rules,
    seconds: float,
    rng: np.random.Generator,
    step: Step,
    open_device: OpenDevice | None = None,
) -> Confirmation:
    """Compare challengers with the incumbent until the rules allow a stop or the time is over.

    The repeats of the protocol are measured in turns (``read_block``). A challenger that fails is
    dropped. If the incumbent fails, ``LiveError`` is raised. A block is always finished, so every
    arm has the same number of readings. ``open_device`` opens a fresh measuring process, where it
    is not one of this interpreter.
    """
    fresh: OpenDevice = open_device or (lambda one: Device(target, one))
    arms = {INCUMBENT: incumbent, TWIN: incumbent, **challengers}
    result = Confirmation({name: [] for name in arms})
    started = time.perf_counter()
    while any(name not in result.dropped for name in challengers):
        alive = {name: program for name, program in arms.items() if name not in result.dropped}
        block = read_block(alive, fresh, same_place(target, protocol, rng), rng)
        for name in (INCUMBENT, TWIN):
            if name in block.failed:
                raise LiveError(f"the incumbent program does not run: {block.failed[name]}")
        result.dropped.update(block.failed)
        for name, value in block.seconds.items():
            result.readings[name].append(value)
        spent = time.perf_counter() - started
        blocks = len(result.readings[INCUMBENT])
        left = [name for name in challengers if name not in result.dropped]
        result.judgements = judge(result.readings, rules, left)
        ratios = ", ".join(f"{j.ratio:.3f}" for j in result.judgements)
        step.advance(spent / blocks, note=f"block {blocks}: {ratios} of the incumbent's time")
        if may_stop(result.judgements, blocks, rules) or spent + spent / blocks > seconds:
            break
    return result


def verdict_of(task: Task, target: str, before: Screening, result: Confirmation) -> TaskVerdict:
    """Return what a confirmation proves; raise ``LiveError`` when nothing could be measured.

    If the machine was much slower in the blocks than in the search, the blocks decide nothing:
    the verdict is "undecided", ``reason`` says why, and there is no ratio.
    """
    if not result.readings[INCUMBENT]:
        why = f": {before.rejected[0]['error']}" if before.rejected else ""
        raise LiveError(
            f"no challenger of task {task.task_id} could be measured{why}",
            cure="give a larger --top to rebuild more records, or more --seconds to search longer",
        )
    latency = {
        arm: statistics.geometric_mean(values) for arm, values in result.readings.items() if values
    }
    read_s = {one: s for one, s in (*before.screened, *before.refined) if s is not None}
    by_id = {before.incumbent_id or "": result.readings[INCUMBENT], **result.readings}
    slower = slowed_by(read_s, by_id)
    reason = no_verdict(slower)
    best = overall(result.judgements)
    judged: dict[str, Any] = {"ratio": None, "interval": None}
    judged["verdict"] = "not better" if reason is None else "undecided"
    if reason is None and best is not None:
        recorded = best.challenger in dict(before.screened)
        judged = {
            "verdict": best.verdict,
            "ratio": best.ratio,
            # One block gives no interval.
            "interval": list(best.interval) if math.isfinite(best.interval[1]) else None,
            "aa_interval": [1.0 / best.floor, best.floor],
            "confidence": best.confidence,
            "blocks": best.blocks,
            "winner_id": best.challenger,
            "winner_latency_s": latency[best.challenger],
            "winner_from": "record" if recorded else "refinement",
            "challengers": result.judgements,
        }
    return TaskVerdict(
        task_id=task.task_id,
        name=task.workload,
        arguments=task.arguments,
        target=target,
        incumbent=before.incumbent,
        incumbent_id=before.incumbent_id,
        incumbent_latency_s=latency[INCUMBENT],
        screened=len(before.screened),
        refined=len(before.refined),
        rejected=before.rejected,
        dropped=result.dropped,
        readings_s=result.readings,
        slowed_by=slower,
        reason=reason,
        seconds=round(time.perf_counter() - before.started, 2),
        **judged,
    )
