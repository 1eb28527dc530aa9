"""Names a search's winner: its best programs are read again, and the database says what they take.

TVM compiles with the record whose mean run time is lowest. The winner of the heats
(``toolkit.live.tune.finalists``) keeps what the search read of it; the other finalists are put as
far behind it as the heats say. Programs that were not read again had read slower than all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from toolkit.live.measure.apart import ApartEngine
from toolkit.live.measure.device import Device
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import no_verdict, slowed_by
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.oracle import Engine
from toolkit.live.space.programs import checked_program, timed_program
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.finalists import NEAR, hold_heats, rounds_elsewhere, rounds_here
from toolkit.live.tune.resume import ranked_trials
from toolkit.records import TrialState

CHECKED = 8
"""So many programs of a task are looked at until one computes what it should."""


@dataclass(frozen=True, slots=True)
class Finals:
    """How many programs were read again, and how much slower than in the search.

    ``slowed_by`` is a factor; it is there where it is so large that nothing was decided.
    """

    read: int = 0
    slowed_by: float | None = None


def name_winner(
    space: MetaScheduleSpace,
    writer: DatabaseWriter,
    engine: Engine,
    *,
    target: str,
    protocol: Protocol,
    finalists: int,
    rng: np.random.Generator,
    now: Callable[[], float],
) -> Finals:
    """Read a task's best programs again and settle their records; say what came of it.

    A program that fails now is a failure from now on, unless all do. Nothing is read again where
    only one program is near the best, or where all of the best have been read again before. Where
    the machine reads much slower than in the search, what the search read stands.

    Parameters
    ----------
    finalists
        At most so many of the programs that are within ``NEAR`` of the lowest reading.
    now
        Seconds since the search began, written beside the records when the winner is known.
    """
    ranked = ranked_trials(space, writer)
    near = [(t, p) for s, t, p in ranked if s <= NEAR * ranked[0][0]][:finalists]
    if len(near) < 2:
        return Finals()
    lines = [writer.trials[position] for _, position in near]
    # A run that was killed while it settled the records has another first one than it named.
    if all("searched_s" in line for line in lines) and lines[0]["final_place"] == 1:
        return Finals()
    programs, positions, read_s = {}, {}, {}
    for trial, position in near:
        made = space.realise(trial.candidate)
        if made is not None and trial.latency_s is not None:
            name = str(position)
            read_s[name] = trial.latency_s
            programs[name] = timed_program(made.schedule, space.design.inputs)
            positions[name] = position
    elsewhere = isinstance(engine, ApartEngine) and engine.remote is not None
    opened = (
        rounds_elsewhere(programs, engine, rng)
        if elsewhere
        else rounds_here(programs, target, protocol, rng)
    )
    with opened as read:
        standing = hold_heats(list(programs), read)
    if not standing.order:
        # All of them ran in the search: it is the machine that fails, or its limits.
        return Finals(len(programs))
    factor = slowed_by(read_s, standing.seconds)
    if no_verdict(factor):
        return Finals(len(programs), factor)
    for name, reading in standing.failed.items():
        writer.condemn(positions[name], reading.state, reading.error or reading.state.value)
    first = standing.order[0]
    anchor = _mean_s(writer, positions[first])
    settled = {
        positions[name]: anchor * math.exp(standing.levels[name] - standing.levels[first])
        for name in standing.order
    }
    writer.settle(settled, final_clock_s=round(now(), 4))
    return Finals(len(programs))


def check_winner(space: MetaScheduleSpace, writer: DatabaseWriter, device: Device) -> str | None:
    """Compare a task's best outputs with the unscheduled program's; condemn what is wrong.

    The next best is looked at then, so that the database's first choice computes what it should.
    Returns why nothing could be compared, if so.
    """
    design = space.design
    reference = device.set_reference(checked_program(design.module, design.inputs))
    if reference.state is not TrialState.OK:
        return reference.error or reference.state.value
    for _, trial, position in ranked_trials(space, writer)[:CHECKED]:
        made = space.realise(trial.candidate)
        if made is None:
            continue
        answer = device.check(checked_program(made.schedule.mod, design.inputs))
        if answer.state is TrialState.OK:
            break
        writer.condemn(position, answer.state, answer.error or answer.state.value)
    return None


def _mean_s(writer: DatabaseWriter, position: int) -> float:
    times = writer.records[position][1][1]
    return float(sum(times) / len(times))
