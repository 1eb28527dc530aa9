"""Measure several programs in turns, each in its own process.

The processes are built first, at the same time, and then measured in turns. They use the same
processors, and their arguments lie at the same places in memory. So a change of the clock, or other
load, affects all programs and cancels in the comparison. Processes that wait for their turn are
suspended (``Device``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import processors_by_core, runs_on_cpu
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.records import TrialState

ROUNDS = 9
"""Turns of a block, unless the protocol has more repeats. Each arm is read once in each turn."""
LEAST_MS = 5
"""Shortest repeat, in milliseconds."""

OpenDevice = Callable[[Protocol], Device]
"""Opens a measuring process for an arm of a block: its own, or one that all arms share."""


@dataclass
class Block:
    """One reading of every arm.

    ``seconds`` is each arm's latency (``level``), ``rounds`` its repeats in seconds, in the order
    of the rounds. ``failed`` has the reason why an arm did not build or run.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, reading: MeasureResult) -> bool:
        """Note a failed reading; return whether the reading can be used."""
        if reading.state is not TrialState.OK:
            self.failed.setdefault(name, f"{reading.state.value}: {reading.error}")
        return reading.state is TrialState.OK


def same_place(target: str, protocol: Protocol, rng: np.random.Generator) -> Protocol:
    """Choose the same processors and places in memory for all arms of a block.

    One processor may have a busier neighbour or a faster clock than the next one. If the system
    chose, each process would have its own luck for its whole life. The start of the arguments
    matters, too: a load whose address ends like that of a recent store may have to wait for that
    store (4 KiB aliasing). Each block has other processors and places; processors and places that
    the protocol sets are kept. Programs that do not run on the CPU are not placed.
    """
    if not runs_on_cpu(target):
        return protocol
    if protocol.placement is None:
        protocol = replace(protocol, placement=int(rng.integers(1 << 31)))
    if protocol.cores or not hasattr(os, "sched_getaffinity"):
        return protocol
    cores = processors_by_core()
    if len(cores) <= protocol.threads:
        return protocol
    begin = int(rng.integers(len(cores) - protocol.threads + 1))
    chosen = cores[begin : begin + protocol.threads]
    return replace(protocol, cores=tuple(core[0] for core in chosen))


def one_turn(protocol: Protocol, turns: int) -> Protocol:
    """Return the protocol of one turn: the reading time of a program is divided by the turns."""
    shared_ms = protocol.min_repeat_ms * protocol.repeat // turns
    return replace(protocol, repeat=1, min_repeat_ms=max(shared_ms, LEAST_MS))


def read_block(
    arms: Mapping[str, Program],
    open_device: OpenDevice,
    protocol: Protocol,
    rng: np.random.Generator,
) -> Block:
    """Build every arm in its own process, then measure all arms in turns, in random order.

    After its first failure an arm is left out; the others go on.
    """
    block = Block()
    rounds = max(protocol.repeat, ROUNDS)
    once = one_turn(protocol, rounds)
    with contextlib.ExitStack() as stack:
        devices = {name: stack.enter_context(open_device(once)) for name in arms}
        # All at the same time: nothing is measured yet.
        with ThreadPoolExecutor(min(len(arms), os.cpu_count() or 1)) as builders:
            order = rng.permutation(list(arms)).tolist()
            built = builders.map(lambda name: devices[name].build(arms[name]), order)
            for name, reading in zip(order, built, strict=True):
                block.note(name, reading)
        for _ in range(rounds):
            for name in rng.permutation(list(arms)).tolist():
                if name in block.failed:
                    continue
                reading = devices[name].measure(arms[name], keep=True)
                if block.note(name, reading):
                    block.rounds.setdefault(name, []).append(reading.run_times_s[0])
    names = [name for name in arms if name not in block.failed]
    if names:
        levels = level(np.array([block.rounds[name] for name in names]).T)
        block.seconds = dict(zip(names, levels.tolist(), strict=True))
    return block


def level(rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each arm's latency from readings in turns: seconds ``(rounds, arms)`` to ``(arms,)``.

    The median of the logarithms of a round is what its arms have in common. It is replaced by its
    median over all rounds. An arm's latency is the median of its readings after that. Medians are
    used because single readings are disturbed.
    """
    logs = np.log(rounds)
    common = np.median(logs, axis=1, keepdims=True)
    levels: NDArray[np.float64] = np.exp(np.median(logs - common, axis=0) + np.median(common))
    return levels
