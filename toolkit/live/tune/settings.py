"""Settings of a search: its budget, and when a search of several tasks may stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.live.tune.finalists import FINALISTS
from toolkit.search.network import NetworkRun

LOOK_BACK, LEAST_FALL, AT_LEAST_S = 0.4, 0.01, 90.0
"""Constants of ``settled``: when a search of several tasks has settled."""

DECAY = 1.5
"""Power of a task's rounds by which its expected gain falls (Ansor: 1). Tasks that learn from each
other settle sooner, so a higher power gives more time to tasks with few rounds."""

NETWORK_PATIENCE = 16.0
"""``patience`` of a network's engine (``Device``): slow builds of one function delay all others."""

RESERVE_SHARE, CHECKS_SHARE, FINALS_S, CHECK_S = 0.25, 0.1, 8.0, 0.7
"""Time kept for what follows a search: so many seconds for each task, but at most the first share,
or the second share if only outputs are left to check."""


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """How a search spends its budget.

    Attributes
    ----------
    trials, seconds
        Budget of all tasks together; one of them may be ``None``.
    strategy, options
        A strategy of ``toolkit.search`` and its options.
    scheduler, scheduler_options
        A task scheduler of ``toolkit.search`` and its options.
    round_size, first_round
        Trials of a task in one round, and in its first round.
    stop_when_settled
        End a search of several tasks when no further gain is expected (``settled``).
    finalists
        Number of each task's best programs that are measured again to find the winner; 0: none.
    check
        Compare the outputs of each task's best program with those of the unscheduled program.
    tolerance
        Error that was allowed when the network of these tasks was prepared.
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
    """Return settings for a network: all tasks first, then small rounds.

    ``stop`` ends the search when it has settled. A network can run once each task has had its first
    round, so this round is short and considers fewer candidates: otherwise the first candidates
    of 30 tasks would take minutes. No program is measured again here: programs are measured in the
    network (``toolkit.networks.selection``).
    """
    options = dict(settings.options)
    if settings.strategy in ("transfer-evolved", "potential"):
        options.setdefault("first", 1)
    return replace(
        settings,
        options=options,
        scheduler_options={"decay": DECAY} if settings.scheduler == "gradient" else {},
        round_size=8,
        first_round=2,
        finalists=0,
        stop_when_settled=stop,
    )


def settled(run: NetworkRun) -> bool:
    """Return whether the objective fell by less than ``LEAST_FALL`` in the last ``LOOK_BACK``.

    ``LOOK_BACK`` is a share of the time. False until every task has had two rounds, and in the
    first ``AT_LEAST_S`` seconds.
    """
    now = run.clock_s[-1]
    if now < AT_LEAST_S or any(task.rounds < 2 and not task.exhausted for task in run.tasks):
        return False
    before = next(i for i, at in enumerate(run.clock_s) if at >= (1 - LOOK_BACK) * now)
    return run.objective_s[-1] > (1 - LEAST_FALL) * run.objective_s[before]


def search_seconds(settings: TuneSettings, tasks: int) -> float | None:
    """Return the seconds for the search itself: the steps after it are part of the budget."""
    if settings.seconds is None:
        return None
    a_task = (FINALS_S if settings.finalists else 0.0) + (CHECK_S if settings.check else 0.0)
    share = RESERVE_SHARE if settings.finalists else CHECKS_SHARE
    return settings.seconds - min(share * settings.seconds, a_task * tasks)
