"""Names a search's winner: its best programs are read again, and the database says what they take.

TVM compiles with the record whose mean run time is lowest. The winner of the heats
(``toolkit.live.tune.finalists``) keeps what the search read of it; the other finalists are put as
far behind it as the heats say. Programs that were not read again had read slower than all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
) -> float | None:
    """Read a task's best programs again and settle their records.

    Returns by which factor the machine reads slower than in the search, where that is so much that
    what the search read stands; else ``None``. A program that fails now is a failure from now on,
    unless all do. Nothing is read again where only one program is near the best, or where all of
    the best have been read again before.

    Parameters
    ----------
    finalists
        At most so many of the programs that are within ``NEAR`` of the lowest reading.
    now
        Seconds since the search began, written beside the records when the winner is known.
    """
    ranked = ranked_trials(space, writer)
    near = [each for each in ranked if each[0] <= NEAR * ranked[0][0]][:finalists]
    if len(near) < 2:
        return None
    lines = [writer.trials[position] for _, _, position in near]
    # A run that was killed while it settled the records has another first one than it named.
    if all("searched_s" in line for line in lines) and lines[0]["final_place"] == 1:
        return None
    programs, read_s = {}, {}
    for seconds, trial, position in near:
        made = space.realise(trial.candidate)
        if made is not None:
            programs[str(position)] = timed_program(made.schedule, space.design.inputs)
            read_s[str(position)] = seconds
    if isinstance(engine, ApartEngine) and engine.remote is not None:
        opened = rounds_elsewhere(programs, engine, rng)
    else:
        opened = rounds_here(programs, target, protocol, rng)
    with opened as read:
        standing = hold_heats(list(programs), read)
    if not standing.order:
        # All of them ran in the search: it is the machine that fails, or its limits.
        return None
    factor = slowed_by(read_s, standing.seconds)
    if no_verdict(factor):
        return factor
    for name, reading in standing.failed.items():
        writer.condemn(int(name), reading.state, reading.error or reading.state.value)
    first = standing.order[0]
    settled = {
        int(name): read_s[first] * math.exp(standing.levels[name] - standing.levels[first])
        for name in standing.order
    }
    writer.settle(settled, final_clock_s=round(now(), 4))
    return None


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
