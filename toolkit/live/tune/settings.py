"""How a search spends its budget, and when a search of several tasks has spent enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.live.tune.finalists import FINALISTS
from toolkit.search.network import NetworkRun

LOOK_BACK, LEAST_FALL, AT_LEAST_S = 0.4, 0.01, 90.0
"""When a search of several tasks has settled (``settled``)."""

DECAY = 1.5
"""Ansor expects of a task's next round what its first gave over its rounds; tasks that learn from
each other settle sooner, and their time is better spent on the many that had few rounds."""

NETWORK_PATIENCE = 16.0
"""Of the engine that tunes a network (``Device``): slow builds of one function cost all of them."""

RESERVE_SHARE, CHECKS_SHARE, FINALS_S, CHECK_S = 0.25, 0.1, 8.0, 0.7
"""Kept for what follows a search: at most the first share, or the second where nothing but outputs
is left to check, and so many seconds a task."""


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """How a budget is spent.

    Attributes
    ----------
    trials, seconds
        Budget of all tasks together; either may be ``None``, not both.
    strategy, options
        A strategy of ``toolkit.search`` and its options.
    scheduler, scheduler_options
        A task scheduler of ``toolkit.search`` and its options.
    round_size, first_round
        Trials that a task is given at a time, and at first.
    stop_when_settled
        End a search of several tasks when nothing more is to be expected (``settled``).
    finalists
        So many of each task's best programs are read again before one is named; 0: none.
    check
        Compare the outputs of each task's best program with the unscheduled one's.
    tolerance
        Error with which the network was prepared whose tasks these are.
    """

    trials: int | None = 256
    seconds: float | None = None
    strategy: str = "evolutionary"
    options: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str = "gradient"
    scheduler_options: Mapping[str, Any] = field(default_factory=dict)
    round_size: int = 64
    first_round: int | None = None
    stop_when_settled: bool = False
    seed: int = 0
    finalists: int = FINALISTS
    check: bool = True
    tolerance: float = 0.0


def for_network(settings: TuneSettings, *, stop: bool) -> TuneSettings:
    """Settings of a network: breadth first, then small turns; ``stop`` ends it when it settled.

    A whole network exists once each task had its first, short round. That round looks at fewer
    candidates: the first ones of 30 tasks would take minutes otherwise. Nothing is read again: what
    a program takes in the network is read there (``toolkit.networks.selection``).
    """
    options = dict(settings.options)
    if settings.strategy in ("transfer-evolved", "potential"):
        options.setdefault("first", 1)
    known = {"decay": DECAY} if settings.scheduler == "gradient" else {}
    return replace(
        settings,
        options=options,
        scheduler_options=known,
        round_size=8,
        first_round=2,
        finalists=0,
        stop_when_settled=stop,
    )


def settled(run: NetworkRun) -> bool:
    """Whether the last ``LOOK_BACK`` of the time took less than ``LEAST_FALL`` off the objective.

    Not before every task had two rounds, nor in the first ``AT_LEAST_S`` seconds.
    """
    now = run.clock_s[-1]
    if now < AT_LEAST_S or any(task.rounds < 2 and not task.exhausted for task in run.tasks):
        return False
    before = next(i for i, at in enumerate(run.clock_s) if at >= (1 - LOOK_BACK) * now)
    return run.objective_s[-1] > (1 - LEAST_FALL) * run.objective_s[before]


def search_seconds(settings: TuneSettings, tasks: int) -> float | None:
    """Seconds of the search itself: what follows it lies within those that are given, too."""
    if settings.seconds is None:
        return None
    a_task = (FINALS_S if settings.finalists else 0.0) + (CHECK_S if settings.check else 0.0)
    share = RESERVE_SHARE if settings.finalists else CHECKS_SHARE
    return settings.seconds - min(share * settings.seconds, a_task * tasks)
