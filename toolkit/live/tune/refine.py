"""A few rounds of search on the device, warm from what is known, through the common runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import show
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.progress import Step
from toolkit.records import Trial
from toolkit.search import STRATEGIES
from toolkit.search.runner import Budget, Run, WallClock, run
from toolkit.training.trained.models import TrainedModels


def refine(
    space: MetaScheduleSpace,
    oracle: DeviceOracle,
    *,
    strategy: str,
    known: Sequence[Trial],
    seconds: float,
    rng: np.random.Generator,
    guides: TrainedModels,
    judged_task: str,
    step: Step,
    batch_size: int = 16,
) -> list[Trial]:
    """Search for at most so many seconds, told first what is known; return the new trials."""
    searcher: Any = STRATEGIES.get(strategy)(
        space,
        None,
        rng,
        scorer=guides.scorer(judged_task),
        direction_scorer=guides.direction_scorer(judged_task),
    )
    if known:
        searcher.tell(list(known))
    last = 0.0

    def follow(state: Run, _: Sequence[Trial]) -> None:
        nonlocal last
        best = state.best_latency_s
        note = f"{state.evaluations} trials" + (f", best {show.seconds(best)}" if best else "")
        step.advance(max(0.0, state.seconds - last), note=note)
        last = state.seconds

    result = run(
        searcher,
        oracle,
        Budget(seconds=seconds),
        batch_size=batch_size,
        clock=WallClock(),
        on_batch=follow,
    )
    return list(result.trials)
