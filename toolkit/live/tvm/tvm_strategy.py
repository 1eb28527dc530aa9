"""The toolkit's strategies inside TVM's own tuner.

    from toolkit import live
    ms.tune_tir(module, target, work_dir, 256, strategy=live.strategy("etc-mutation", model=FOLDER))

TVM's builder, runner, database and task scheduler are unchanged. A strategy of ``toolkit.search``
proposes the candidates, over ``MetaScheduleSpace``, as in ``toolkit tune``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.tune import make_strategy
from toolkit.records import Candidate, Trial, TrialState
from toolkit.training.trained.models import TrainedModels

# TVM ends a task whose strategy returns nothing, so this many refused batches are replaced.
REFUSED_BATCHES = 16


@derived_object
class ToolkitStrategy(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """A strategy of ``toolkit.search`` as a ``SearchStrategy`` of TVM 0.27.

    The contract is TVM's (``search_strategy/search_strategy.py``): initialise with a context, start
    with a budget, then return batches, and ``None`` at the end.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        guides: TrainedModels,
        seed: int,
        machine: str | None,
    ) -> None:
        super().__init__()
        self.given = (name, options, guides, seed, machine)
        self.context: Any = None
        self.searcher: Any = None
        self.space: Any = None
        self.left = self.batch = 0
        self.asked: list[Candidate] = []

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.context = context

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Any],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Build the space and the strategy; TVM's cost model is not used."""
        name, options, guides, seed, machine = self.given
        for warning in guides.warnings(str(self.context.target)):
            warnings.warn(warning, UserWarning, stacklevel=2)
        design = DesignSpace(self.context.mod, str(self.context.target), seed=seed + 1)
        self.space = MetaScheduleSpace(design, machine=machine)
        rng = np.random.default_rng(seed)
        self.searcher = make_strategy(self.space, guides, name, options, rng)
        self.left, self.batch = int(max_trials), int(num_trials_per_iter)

    def post_tuning(self) -> None:
        """Release the strategy and the space."""
        self.searcher = self.space = None

    def generate_measure_candidates(self) -> list[Any] | None:
        """Return the next batch; ``None`` if the budget is spent or no candidate is left."""
        self.asked, wanted = [], min(self.batch, self.left)
        for _ in range(REFUSED_BATCHES):
            candidates = self.searcher.ask(wanted) if wanted > 0 else []
            if not candidates:
                return None
            found: list[Any] = []
            refused: list[Trial] = []
            for candidate in candidates:
                design = self.space.realise(candidate)
                if design is None:
                    state = TrialState.INSTANTIATION
                    refused.append(Trial(candidate, state, (), 0.0, time.time(), "refused"))
                    continue
                made = design.schedule
                arguments = ms.arg_info.ArgInfo.from_entry_func(made.mod, remove_preproc=True)
                found.append(ms.search_strategy.MeasureCandidate(made, arguments))
                self.asked.append(candidate)
            if refused:
                self.searcher.tell(refused)
            if found:
                self.left -= len(found)
                return found
        return None

    def notify_runner_results(self, measure_candidates: Sequence[Any], results: Any) -> None:
        """Pass the measurements of TVM's runner to the strategy."""
        trials = []
        for candidate, result in zip(self.asked, results, strict=True):
            times = () if result.run_secs is None else tuple(float(s) for s in result.run_secs)
            error = None if result.error_msg is None else str(result.error_msg)
            # TVM's result does not say whether building or running failed.
            state = TrialState.OK if error is None and times else TrialState.UNKNOWN
            run_times = times if state is TrialState.OK else ()
            trials.append(Trial(candidate, state, run_times, sum(times), time.time(), error))
        self.asked = []
        self.searcher.tell(trials)

    def clone(self) -> Any:
        """Return a new strategy with the same settings: TVM clones a strategy for every task."""
        return ToolkitStrategy(*self.given)
