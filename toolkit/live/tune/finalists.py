"""Measure the best programs of a search again, in turns, before one is named the winner.

The lowest of five hundred readings is a lucky one. So the programs that read lowest are built again
and measured round by round. After each heat the slower half leaves (sequential halving: Karnin,
Koren and Somekh 2013, "Almost optimal exploration in multi-armed bandits", algorithm 1). What all
programs of a round have in common is removed, as in ``toolkit.live.measure.turns``.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from toolkit.live.measure.device import Device
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import ROUNDS, level, one_turn, same_place
from toolkit.live.space.oracle import Engine
from toolkit.records import TrialState

FINALISTS = 12
"""Default number of programs that are measured again: those that read lowest."""

NEAR = 1.2
"""Programs that read slower than the lowest by more than this factor are not measured again."""

LAST = 2
"""A heat with at most so many programs is the last one."""

PROCESSES = 2
"""Processes that build every finalist, so that the luck of one process does not decide."""

TURNS = 5
"""Rounds of a heat in each process; twice as many in the last heat."""

PASSES = 2
"""Rounds of a heat if each reading needs a fresh build (devices elsewhere); twice in the last."""

ReadRounds = Callable[[Sequence[str], bool], Iterator[Mapping[str, MeasureResult]]]
"""Yields rounds of readings, by name, of the given programs; the flag marks the last heat."""


@dataclass
class Standing:
    """The result of the heats.

    ``order`` has the names of the programs that ran, best first. ``levels`` has the logarithm of
    each program's latency, up to a common constant. ``failed`` has the programs that failed in the
    heats, and how. ``seconds`` has the readings of each program, round by round.
    """

    order: list[str] = field(default_factory=list)
    levels: dict[str, float] = field(default_factory=dict)
    failed: dict[str, MeasureResult] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)


def hold_heats(names: Sequence[str], read: ReadRounds) -> Standing:
    """Halve the programs until two are left; return a ranking of all of them."""
    failed: dict[str, MeasureResult] = {}
    rounds: list[dict[str, float]] = []
    alive: list[str] = list(names)
    left: list[str] = []
    while True:
        last = len(alive) <= LAST
        heat = list(_good_rounds(read(alive, last), failed))
        rounds += heat
        alive = [name for name in alive if name not in failed]
        whole = [[row[name] for name in alive] for row in heat if set(alive) <= set(row)]
        if whole and alive:
            alive = [alive[place] for place in np.argsort(level(np.array(whole)), kind="stable")]
        if last:
            break
        keep = max(LAST, (len(alive) + 1) // 2)
        left = alive[keep:] + left
        alive = alive[:keep]
    order = alive + left
    seconds = {name: [row[name] for row in rounds if name in row] for name in names}
    return Standing(order, _over_the_last(rounds, order), failed, seconds)


def _good_rounds(
    rounds: Iterable[Mapping[str, MeasureResult]], failed: dict[str, MeasureResult]
) -> Iterator[dict[str, float]]:
    """Yield the seconds of each round's programs; failures go into ``failed``."""
    for readings in rounds:
        bad = {n: r for n, r in readings.items() if r.state is not TrialState.OK}
        failed.update(bad)
        yield {
            name: float(np.mean(reading.run_times_s))
            for name, reading in readings.items()
            if name not in bad
        }


def _over_the_last(rounds: Sequence[Mapping[str, float]], order: Sequence[str]) -> dict[str, float]:
    """Return the median over rounds of each program's logarithm, less the mean of the last two.

    A program that left earlier never ranks before one that stayed.
    """
    shared = order[:LAST]
    whole = [row for row in rounds if set(shared) <= set(row)]
    levels: dict[str, float] = {}
    least = -math.inf
    for name in order:
        own = [
            np.log(row[name]) - np.mean(np.log([row[last] for last in shared]))
            for row in whole
            if name in row
        ]
        least = max(least, float(np.median(own)) if own else 0.0)
        levels[name] = least
    return levels


@contextlib.contextmanager
def rounds_here(
    programs: Mapping[str, Program], target: str, protocol: Protocol, rng: np.random.Generator
) -> Iterator[ReadRounds]:
    """Build all programs in two fresh processes on this machine; measure them in turns."""
    once = replace(one_turn(protocol, ROUNDS), number=1, drop_above=0.0, max_retries=0)
    with contextlib.ExitStack() as stack:
        devices = [
            stack.enter_context(Device(target, same_place(target, once, rng)))
            for _ in range(PROCESSES)
        ]

        def build(device: Device) -> dict[str, MeasureResult]:
            return {name: device.build(program) for name, program in programs.items()}

        # All at the same time: nothing is measured yet.
        with ThreadPoolExecutor(min(len(devices), os.cpu_count() or 1)) as builders:
            built = list(builders.map(build, devices))
        failed = {n: r for one in built for n, r in one.items() if r.state is not TrialState.OK}

        def read(names: Sequence[str], last: bool) -> Iterator[Mapping[str, MeasureResult]]:
            lost = {name: failed[name] for name in names if name in failed}
            if lost:
                yield lost
            runs = [name for name in names if name not in failed]
            for device in devices:
                for _ in range(TURNS * (2 if last else 1)):
                    turn: dict[str, MeasureResult] = {}
                    for name in rng.permutation(runs).tolist():
                        if name not in failed:
                            turn[name] = device.measure(programs[name], keep=True)
                            if turn[name].state is not TrialState.OK:
                                failed[name] = turn[name]
                    yield turn

        yield read


@contextlib.contextmanager
def rounds_elsewhere(
    programs: Mapping[str, Program], engine: Engine, rng: np.random.Generator
) -> Iterator[ReadRounds]:
    """Let an engine build and measure all programs, one pass after the other."""

    def read(names: Sequence[str], last: bool) -> Iterator[Mapping[str, MeasureResult]]:
        lost: set[str] = set()
        for _ in range(PASSES * (2 if last else 1)):
            order = [name for name in rng.permutation(names).tolist() if name not in lost]
            answers = engine.measure_many([programs[name] for name in order], lambda: None)
            turn = {order[position]: reading for position, reading in answers}
            lost.update(n for n, r in turn.items() if r.state is not TrialState.OK)
            yield turn

    yield read
