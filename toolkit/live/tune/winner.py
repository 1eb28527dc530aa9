"""Name a search's winner: its best programs are measured again, and the database is updated.

TVM compiles with the record whose mean run time is lowest. The winner of the heats
(``toolkit.live.tune.finalists``) keeps the latency from the search. The other finalists get
latencies above it, in the ratios of the heats. Programs that were not measured again had read
slower than all finalists.
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
"""Largest number of a task's programs that are checked until one has right outputs."""


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
    """Measure a task's best programs again and update their records.

    Returns ``None``, or the factor by which the machine is slower than in the search, if that is
    too much: then the records stay as they are. A program that fails now is recorded as a failure,
    unless all fail. Nothing is measured again if only one program is near the best, or if all of
    the best have been measured again before.

    Parameters
    ----------
    finalists
        Largest number of programs within ``NEAR`` of the lowest reading.
    now
        Returns seconds since the search began; stored with the records of the finalists.
    """
    ranked = ranked_trials(space, writer)
    near = [each for each in ranked if each[0] <= NEAR * ranked[0][0]][:finalists]
    if len(near) < 2:
        return None
    lines = [writer.trials[position] for _, _, position in near]
    # If a run was killed during the update, the first record is not the winner that it named.
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
        # All of them ran in the search, so the machine or its limits are at fault.
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
    """Compare a task's best outputs with the unscheduled program's; mark wrong programs as failed.

    After a wrong program the next best is checked, so that the database's first choice is right.
    Returns the reason if nothing could be compared, else ``None``.
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
