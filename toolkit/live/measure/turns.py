"""Reads several programs in turns, each in a process of its own.

The processes are made first, side by side, and then read in turns, on the same processors and with
arguments at the same places in memory: a clock that changes or a neighbour that wakes up reaches
all of them, and what reaches all decides nothing. Those that wait for their turn are suspended
(``Device``).
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
"""Turns of a block, where the protocol has not more repeats: each arm is read once in each."""
LEAST_MS = 5
"""A repeat lasts so long at least, in milliseconds."""

OpenDevice = Callable[[Protocol], Device]
"""Opens a measuring process for one arm of one block: its own, or one that all of them share."""


@dataclass
class Block:
    """One reading of every arm.

    ``seconds`` is what each arm is said to take (``level``), ``rounds`` its repeats in seconds in
    the order of the rounds; ``failed`` says why an arm did not build or run.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, reading: MeasureResult) -> bool:
        """Note a reading that failed; say whether it is one to be used."""
        if reading.state is not TrialState.OK:
            self.failed.setdefault(name, f"{reading.state.value}: {reading.error}")
        return reading.state is TrialState.OK


def same_place(target: str, protocol: Protocol, rng: np.random.Generator) -> Protocol:
    """Choose neighbouring processors, and places in memory, for all arms of a block.

    One processor may have a busier neighbour, or a faster clock, than the next: left to the
    system, each process has its own share of luck for as long as it lives. So has it with where
    its arguments begin: a load whose address ends like that of a store shortly before it may wait
    for that store (4 KiB aliasing). Another block has other processors and other places; what the
    protocol names is kept. Programs that do not run on the CPU stay where the system puts them.
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
    """The protocol of one turn: the time for which it reads a program is divided among them."""
    shared_ms = protocol.min_repeat_ms * protocol.repeat // turns
    return replace(protocol, repeat=1, min_repeat_ms=max(shared_ms, LEAST_MS))


def read_block(
    arms: Mapping[str, Program],
    open_device: OpenDevice,
    protocol: Protocol,
    rng: np.random.Generator,
) -> Block:
    """Build every arm in a process of its own, then read all of them in turns, in random order.

    An arm that fails once has failed; the others go on.
    """
    block = Block()
    rounds = max(protocol.repeat, ROUNDS)
    once = one_turn(protocol, rounds)
    with contextlib.ExitStack() as stack:
        devices = {name: stack.enter_context(open_device(once)) for name in arms}
        # Side by side: nothing is measured yet.
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
    """What each arm takes, of readings in turns: ``(rounds, arms)`` in seconds to ``(arms,)``.

    What the arms of a round have in common (the median of their logarithms) is put at its median
    over the rounds; an arm's level is the median of its readings so put. Medians, because it is
    single readings that are disturbed.
    """
    logs = np.log(rounds)
    common = np.median(logs, axis=1, keepdims=True)
    levels: NDArray[np.float64] = np.exp(np.median(logs - common, axis=0) + np.median(common))
    return levels
