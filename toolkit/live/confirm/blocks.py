"""Measures arms in random blocks until the rules let it end.

Every arm of a block has a fresh process with a fresh build (``toolkit.live.measure.turns``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from toolkit.errors import LiveError
from toolkit.live.confirm.rules import INCUMBENT, TWIN, Judgement, Rules, judge, may_stop
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import OpenDevice, read_block, same_place
from toolkit.progress import Step


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
    open_device: OpenDevice | None = None,
) -> Confirmation:
    """Compare challengers with the incumbent until the rules let it end or time is up.

    The repeats of the protocol are taken in turns (``read_block``). A challenger that fails is
    dropped; an incumbent that fails ends it with ``LiveError``. Blocks are whole: one that was
    begun is finished, so that every arm has the same number of readings. ``open_device`` opens a
    fresh measuring process where it is not this interpreter's.
    """
    fresh = open_device or (lambda one: Device(target, one))
    result = Confirmation()
    arms = {INCUMBENT: incumbent, TWIN: incumbent, **challengers}
    result.readings = {name: [] for name in arms}
    started = time.perf_counter()
    while True:
        alive = [name for name in challengers if name not in result.dropped]
        if not alive:
            break
        block = read_block(
            {name: arms[name] for name in (INCUMBENT, TWIN, *alive)},
            fresh,
            same_place(target, protocol, rng),
            rng,
        )
        for name in (INCUMBENT, TWIN):
            if name in block.failed:
                raise LiveError(f"the incumbent does not run: {block.failed[name]}")
        result.dropped.update(block.failed)
        for name, value in block.seconds.items():
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
