"""The runner: budgets, clocks, cache and checkpoints, whatever the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from benchmarks.checkpoint import Checkpoint

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial, TrialState
from toolkit.search import STRATEGIES
from toolkit.search.base import Oracle, Strategy
from toolkit.search.runner import Budget, SimulatedClock, run
from toolkit.testing.spaces import FormulaOracle, OpenSpace


def strategy(seed: int = 0) -> Strategy:
    made: Strategy = STRATEGIES.get("random")(OpenSpace(), None, np.random.default_rng(seed))
    return made


def test_budget_of_evaluations_is_kept_to_the_last_batch() -> None:
    result = run(strategy(), FormulaOracle(), Budget(evaluations=21), batch_size=8)
    assert (result.evaluations, result.stopped) == (21, "evaluations")
    assert result.batches == [8, 8, 5]


def test_budget_of_seconds_ends_after_the_batch_that_spent_it() -> None:
    clock = SimulatedClock()
    result = run(strategy(), FormulaOracle(), Budget(seconds=10), batch_size=4, clock=clock)
    assert result.stopped == "seconds"
    assert clock.now() >= 10
    assert result.clock_s[-5] < 10  # the batch before the last had not spent it


def test_best_is_the_lowest_latency() -> None:
    result = run(strategy(), FormulaOracle(), Budget(evaluations=75), batch_size=25)
    latencies = [t.latency_s for t in result.trials if t.latency_s is not None]
    assert result.best_latency_s == min(latencies)
    assert result.evaluations == 75 > len(latencies)


def test_a_space_without_more_candidates_exhausts_the_run() -> None:
    result = run(strategy(), FormulaOracle(), Budget(), batch_size=10)
    assert result.stopped == "exhausted"
    assert len({t.candidate.candidate_id for t in result.trials}) == result.evaluations == 75


def test_parallel_workers_share_a_batch() -> None:
    candidate = OpenSpace().sample(np.random.default_rng(0), 1)[0]
    trials = [Trial(candidate, TrialState.OK, (1e-3,), elapsed_s=s) for s in (4.0, 1.0, 1.0, 1.0)]
    one, two = SimulatedClock(1), SimulatedClock(2)
    assert one.charge(trials) == [4.0, 5.0, 6.0, 7.0]
    assert two.charge(trials) == [4.0, 1.0, 2.0, 3.0]
    assert (one.now(), two.now()) == (7.0, 4.0)


class Echo:
    """A strategy that always proposes the same two candidates."""

    name = "echo"

    def __init__(self) -> None:
        self.pair = OpenSpace().sample(np.random.default_rng(1), 2)

    def ask(self, n: int) -> list[Candidate]:
        return self.pair[:n]

    def tell(self, trials: Sequence[Trial]) -> None:
        return


class Missing:
    """Knows nothing of any candidate."""

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        return []


def test_misses_cost_nothing_but_end_a_run_that_meets_nothing_else() -> None:
    result = run(Echo(), Missing(), Budget(evaluations=5))
    assert (result.evaluations, result.stopped) == (0, "misses")
    assert result.missed == result.proposals > 0


class Interrupting:
    """Measures like another oracle, and is killed at the given batch."""

    def __init__(self, oracle: Oracle, at: int) -> None:
        self.oracle, self.left = oracle, at

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        return self.oracle.measure(candidates)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    budget = Budget(evaluations=32)
    whole = run(strategy(), FormulaOracle(), budget, batch_size=8, clock=SimulatedClock())
    first = Checkpoint(Interrupting(FormulaOracle(), 2), path)
    with pytest.raises(KeyboardInterrupt):
        run(strategy(), first, budget, batch_size=8, clock=SimulatedClock())
    with path.open("ab") as file:
        file.write(b'{"asked": ["cut short')  # killed in the middle of a write
    oracle = FormulaOracle()
    again = Checkpoint(oracle, path)
    resumed = run(strategy(), again, budget, batch_size=8, clock=SimulatedClock())
    assert len(oracle.measured) == 16  # only what was missing
    assert resumed.trials == whole.trials
    assert resumed.clock_s == whole.clock_s


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    Checkpoint(FormulaOracle(), path, {"seed": 1})
    with pytest.raises(SearchError, match="other settings"):
        Checkpoint(FormulaOracle(), path, {"seed": 2})


def test_a_checkpoint_of_another_strategy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    run(strategy(0), Checkpoint(FormulaOracle(), path), Budget(evaluations=8), batch_size=8)
    with pytest.raises(SearchError, match="other candidates"):
        run(strategy(1), Checkpoint(FormulaOracle(), path), Budget(evaluations=8), batch_size=8)


@pytest.mark.parametrize("budget", [{"evaluations": 0}, {"seconds": 0.0}])
def test_an_empty_budget_is_refused(budget: dict[str, float]) -> None:
    with pytest.raises(SearchError):
        Budget(**budget)  # type: ignore[arg-type]
