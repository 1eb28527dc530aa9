"""Measures arms in random blocks, every reading from a fresh process and a fresh build."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from toolkit.errors import LiveError
from toolkit.live.confirm import INCUMBENT, TWIN, Judgement, Rules, judge, may_stop
from toolkit.live.device import Device, Program
from toolkit.live.protocol import Protocol
from toolkit.progress import Step
from toolkit.records import TrialState


@dataclass
class Confirmation:
    """Readings by arm in block order (seconds), what is claimed, and what was dropped and why."""

    readings: dict[str, list[float]] = field(default_factory=dict)
    judgements: list[Judgement] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


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
    open_device: Callable[[], Device] | None = None,
) -> Confirmation:
    """Compare challengers with the incumbent until the rules let it end or time is up.

    A reading is the median of the protocol's repeats. A challenger that fails is dropped; an
    incumbent that fails ends it with ``LiveError``. Blocks are whole: one that was begun is
    finished, so that every arm has the same number of readings. ``open_device`` opens a fresh
    measuring process where it is not this interpreter's.
    """
    fresh = open_device or (lambda: Device(target, protocol))
    result = Confirmation()
    arms = {INCUMBENT: incumbent, TWIN: incumbent, **challengers}
    result.readings = {name: [] for name in arms}
    started = time.perf_counter()
    while True:
        alive = [name for name in challengers if name not in result.dropped]
        if not alive:
            break
        order = [INCUMBENT, TWIN, *alive]
        rng.shuffle(order)
        block: dict[str, float] = {}
        for name in order:
            with fresh() as device:
                reading = device.measure(arms[name])
            if reading.state is not TrialState.OK:
                if name in (INCUMBENT, TWIN):
                    raise LiveError(f"the incumbent does not run: {reading.error}")
                result.dropped[name] = f"{reading.state.value}: {reading.error}"
                continue
            block[name] = statistics.median(reading.run_times_s)
        for name, value in block.items():
            result.readings[name].append(value)
        result.seconds = time.perf_counter() - started
        alive = [name for name in alive if name not in result.dropped]
        blocks = len(result.readings[INCUMBENT])
        result.judgements = judge(result.readings, rules, alive)
        step.advance(result.seconds / max(blocks, 1), note=_note(result.judgements, blocks))
        per_block = result.seconds / blocks
        if may_stop(result.judgements, blocks, rules) or result.seconds + per_block > seconds:
            break
    return result


def _note(judgements: list[Judgement], blocks: int) -> str:
    ratios = ", ".join(f"{j.ratio:.3f}" for j in judgements)
    return f"block {blocks}: {ratios} of the incumbent's time"
