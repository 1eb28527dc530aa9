"""The end of a search, within its time: the best programs are read again, outputs are checked.

Tasks come in the order of their cost in the network: if time runs out, the cheap ones are left.
Warnings name what was left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from toolkit.live.measure.device import UNSCHEDULED_TIMEOUT_S
from toolkit.live.measure.engines import device_for_checks
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import slowed_warnings
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.oracle import Engine
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.resume import ranked_trials
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tasks import TuneTask
from toolkit.live.tune.winner import check_winner, name_winner
from toolkit.progress import Progress
from toolkit.search.runner import WallClock
from toolkit.show import plural

AGAIN = "run the same command again when the machine is quiet"
FINALS_SHARE = 0.7
"""Share of the remaining time for reading the best again; the rest is for checking outputs."""

T = TypeVar("T")


def within(things: Sequence[T], deadline_s: float | None, clock: WallClock) -> Iterator[T]:
    """Yield the first thing, and further ones while the longest time so far fits the deadline."""
    longest = 0.0
    for place, thing in enumerate(things):
        begun = clock.now()
        if place and deadline_s is not None and begun + longest > deadline_s:
            return
        yield thing
        longest = max(longest, clock.now() - begun)


def close_search(
    tasks: Sequence[tuple[TuneTask, MetaScheduleSpace]],
    writer: DatabaseWriter,
    engine: Engine,
    *,
    target: str,
    protocol: Protocol,
    settings: TuneSettings,
    clock: WallClock,
    progress: Progress,
) -> tuple[dict[str, str], list[str]]:
    """Name the winners (if ``finalists`` > 0) and check their outputs, within ``seconds``.

    Returns, by task id, why a task's outputs were not compared; and warnings.
    """
    seconds = settings.seconds
    unchecked: dict[str, str] = {}
    warnings: list[str] = []

    def cost(number: int) -> float:
        """Return a task's cost in the network, from the search's readings."""
        task, space = tasks[number]
        ranked = ranked_trials(space, writer)
        return task.weight * ranked[0][0] if ranked else 0.0

    order = sorted(range(len(tasks)), key=cost, reverse=True)
    share = FINALS_SHARE if settings.check else 1.0
    until = None if seconds is None else clock.now() + share * max(seconds - clock.now(), 0.0)
    if settings.finalists:
        done = 0
        with progress.step("read the best again", float(len(order))) as step:
            for number in within(order, until, clock):
                task, space = tasks[number]
                slowed = name_winner(
                    space,
                    writer,
                    engine,
                    target=target,
                    protocol=protocol,
                    finalists=settings.finalists,
                    rng=np.random.default_rng([settings.seed, number]),
                    now=clock.now,
                )
                warnings += slowed_warnings(task.name, slowed, AGAIN)
                step.advance(note=task.name)
                done += 1
        if done < len(order):
            left = plural(len(order) - done, "task")
            warnings.append(f"no time was left to read the best programs of {left} again")
    if settings.check:
        label = f"check outputs, within {UNSCHEDULED_TIMEOUT_S:.0f} s a program"
        done = 0
        with (
            progress.step(label, float(len(order))) as step,
            device_for_checks(engine, target, protocol) as device,
        ):
            for number in within(order, seconds, clock):
                task, space = tasks[number]
                why = check_winner(space, writer, device)
                if why is not None:
                    unchecked[space.task.task_id] = why
                step.advance(note=task.name)
                done += 1
        for number in order[done:]:
            unchecked[tasks[number][1].task.task_id] = "no time was left"
    return unchecked, warnings
