"""Kernel Tuner's strategies as ours (left out without ``pip install '.[kernel-tuner]'``)."""

from __future__ import annotations

import gc
import json
import random
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial, TrialState
from toolkit.search import STRATEGIES
from toolkit.search.runner import Budget, Run, SimulatedClock, run
from toolkit.search.strategy import BaseStrategy
from toolkit.testing.spaces import FiniteSpace, FormulaOracle, finite_space, two_sketch_space

kernel_tuner = pytest.importorskip("kernel_tuner", reason="pip install '.[kernel-tuner]'")

from kernel_tuner.interface import strategy_map  # noqa: E402
from kernel_tuner.searchspace import Searchspace  # noqa: E402
from kernel_tuner.strategies.common import CostFunc  # noqa: E402

VALUES = {"p0": [1, 2, 4, 8, 16], "p1": [1, 2, 4, 8, 16], "p2": [0, 16, 64]}


def make(
    algorithm: str, space: FiniteSpace | None = None, seed: int = 0, **options: Any
) -> BaseStrategy:
    plugin = STRATEGIES.get("kernel-tuner")
    given = {"algorithm": algorithm, "strategy_options": options}
    strategy: BaseStrategy = plugin(space or finite_space(), given, np.random.default_rng(seed))
    return strategy


def ran(strategy: BaseStrategy, evaluations: int = 30, batch_size: int = 8) -> Run:
    clock = SimulatedClock()
    return run(strategy, FormulaOracle(), Budget(evaluations), batch_size=batch_size, clock=clock)


def ids(result: Run) -> list[str]:
    return [trial.candidate.candidate_id for trial in result.trials]


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], BaseStrategy]:
    """An algorithm of the test's own, known to Kernel Tuner as ``mine``."""

    def added(tune: Callable[..., Any]) -> BaseStrategy:
        monkeypatch.setitem(strategy_map, "mine", SimpleNamespace(tune=tune))
        return make("mine")

    return added


@pytest.mark.parametrize("algorithm", sorted(strategy_map))
def test_every_algorithm_proposes_what_is_new_and_depends_on_its_seed_alone(
    algorithm: str,
) -> None:
    try:
        runs = [ran(make(algorithm, seed=seed), 20) for seed in (0, 0, 1)]
    except SearchError as error:
        assert "No module named" in error.what  # skopt and pyatf are packages of their own
        assert "install the module that is named" in str(error.cure)
        return
    first, again, other = map(ids, runs)
    assert first == again
    assert len(set(first)) == len(first) > 10
    assert (first != other) or algorithm == "brute_force"


@pytest.mark.filterwarnings("ignore:None of the tunable parameters:UserWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("algorithm", ["genetic_algorithm", "simulated_annealing", "pso"])
def test_it_measures_what_kernel_tuner_s_own_simulation_does(
    algorithm: str, tmp_path: Path
) -> None:
    seed = int(np.random.default_rng(5).integers(2**32))
    listed = {",".join(map(str, c)): dict(zip(VALUES, c, strict=True)) for c in every_config()}

    class Seeded:
        """The algorithm, on the configurations in their order, from the seed of the start."""

        def tune(self, space: Any, runner: Any, options: Any) -> Any:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            cache = {"tune_params": VALUES, "cache": listed}
            space = Searchspace(None, None, None, from_cache=cache)
            return strategy_map[algorithm].tune(space, runner, options)

    results, _ = kernel_tuner.tune_kernel(
        "toy",
        "float kernel();",
        [1],
        [],
        VALUES,
        lang="C",
        simulation_mode=True,
        cache=written_cache(tmp_path / "toy.json"),
        strategy=Seeded(),
        strategy_options={"max_fevals": 40},
        quiet=True,
    )
    theirs = list(dict.fromkeys(tuple(result[name] for name in VALUES) for result in results))
    result = ran(make(algorithm, seed=5, max_fevals=40), len(theirs))
    ours = [config_of(trial.candidate) for trial in result.trials]
    assert len(theirs) > 20
    assert ours == theirs


def every_config() -> list[tuple[int, ...]]:
    return list(product(*VALUES.values()))


def config_of(candidate: Candidate) -> tuple[int, ...]:
    return candidate.decisions[1], candidate.decisions[3], candidate.decisions[4]


def written_cache(path: Path) -> str:
    """The toy space as a cache of Kernel Tuner."""
    cache = {}
    for trial in FormulaOracle().measure(finite_space().candidates()):
        config = config_of(trial.candidate)
        ok = trial.latency_s is not None
        cache[",".join(map(str, config))] = dict(zip(VALUES, config, strict=True)) | {
            "time": 1e3 * (trial.latency_s or 0.0) if ok else "CompilationFailedConfig",
            "times": [],
            "compile_time": 1.0,
            "verification_time": 0,
            "benchmark_time": 1.0,
            "strategy_time": 0,
            "framework_time": 0,
            "timestamp": "2024-01-01 00:00:00+00:00",
        }
    document = {
        "schema_version": "1.0.0",
        "device_name": "Simulation",
        "kernel_name": "toy",
        "problem_size": [1],
        "tune_params_keys": list(VALUES),
        "tune_params": VALUES,
        "objective": "time",
        "cache": cache,
    }
    path.write_text(json.dumps(document))
    return str(path)


def test_costs_are_milliseconds_and_failures_kernel_tuner_s_own(mine: Any) -> None:
    seen: list[tuple[tuple[int, ...], float]] = []

    def tune(space: Any, runner: Any, options: Any) -> None:
        cost = CostFunc(space, options, runner)
        costs = cost.eval_all(space.list)
        seen.extend(zip(space.list, costs, strict=True))

    result = ran(mine(tune), 75)
    told = {config_of(t.candidate): t.latency_s for t in result.trials}
    assert [config for config, _ in seen] == every_config()[: len(seen)]
    # The budget of a start is the space: its last evaluation ends it, as in Kernel Tuner.
    assert result.evaluations == 75 and not seen

    def two(space: Any, runner: Any, options: Any) -> None:
        cost = CostFunc(space, options, runner)
        seen.append((space.list[0], cost(space.list[0])))
        seen.append((space.list[-1], cost(space.list[-1])))

    ran(mine(two))
    (good, value), (bad, failure) = seen[:2]
    assert value == pytest.approx(1e3 * (told[good] or 0.0))
    assert told[bad] is None and failure == sys.float_info.max


def test_what_was_measured_is_answered_from_memory_and_starts_end_with_nothing_new(
    mine: Any,
) -> None:
    starts: list[int] = []

    def tune(space: Any, runner: Any, options: Any) -> None:
        starts.append(options.seed)
        cost = CostFunc(space, options, runner)
        for _ in range(3):
            cost(space.list[0])
        cost(space.list[min(len(starts), 4)])

    strategy = mine(tune)
    result = ran(strategy)
    assert [config_of(t.candidate) for t in result.trials] == every_config()[:5]
    assert result.batches == [1, 1, 1, 1, 1]
    assert result.stopped == "exhausted"
    # The fifth start asked for nothing new; each start had a seed of its own.
    assert len(set(starts)) == len(starts) == 5
    assert strategy.ask(4) == []


def test_an_endless_start_that_repeats_itself_is_ended(mine: Any) -> None:
    def tune(space: Any, runner: Any, options: Any) -> None:
        cost = CostFunc(space, options, runner)
        while True:
            cost(space.list[0])

    assert ran(mine(tune)).evaluations == 1


def test_a_population_fills_batches_and_one_by_one_does_not() -> None:
    assert ran(make("pso"), 16).batches == [8, 8]
    assert set(ran(make("greedy_ils"), 16).batches) == {1}


def test_several_sketches_are_a_parameter() -> None:
    result = ran(make("genetic_algorithm", two_sketch_space()), 60)
    assert {trial.candidate.sketch_id for trial in result.trials} == {"s0", "s1"}


def searchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("kernel-tuner")]


def test_the_thread_ends_with_the_run_and_with_the_strategy() -> None:
    for seed in range(20):
        ran(make("simulated_annealing", seed=seed), 5)
    assert searchers() == []
    strategy = make("pso")
    assert strategy.ask(4) and len(searchers()) == 1
    del strategy
    gc.collect()
    assert searchers() == []


def test_the_thread_ends_when_a_measurement_or_kernel_tuner_fails(mine: Any) -> None:
    class Broken:
        def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
            raise SearchError("the device is gone")

    def failing() -> None:
        run(make("diff_evo"), Broken(), Budget(5), batch_size=2)

    with pytest.raises(SearchError, match="the device is gone"):
        failing()
    gc.collect()
    assert searchers() == []

    def tune(space: Any, runner: Any, options: Any) -> None:
        raise ValueError("no such thing")

    with pytest.raises(SearchError, match="'mine' stopped with an error on 75 candidates: no such"):
        mine(tune).ask(1)
    assert searchers() == []


def test_no_except_of_an_algorithm_keeps_the_thread(mine: Any) -> None:
    def tune(space: Any, runner: Any, options: Any) -> None:
        cost = CostFunc(space, options, runner)
        for config in space.list:
            try:
                cost(config)
            except Exception:
                continue

    strategy = mine(tune)
    strategy.ask(1)
    del strategy
    gc.collect()
    assert searchers() == []


def test_runs_at_the_same_time_do_not_disturb_each_other_or_the_process() -> None:
    alone = [ids(ran(make(name), 20, 1)) for name in ("genetic_algorithm", "diff_evo")]
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    make_generator = np.random.default_rng
    together, oracle = [make("genetic_algorithm"), make("diff_evo")], FormulaOracle()
    found: list[list[str]] = [[], []]
    for _ in range(20):
        for strategy, taken in zip(together, found, strict=True):
            trials = oracle.measure(strategy.ask(1))
            taken += [trial.candidate.candidate_id for trial in trials]
            strategy.tell(trials)
            assert np.random.default_rng is make_generator
    assert found == alone
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index] # noqa: NPY002


def test_what_is_not_told_counts_as_failed(mine: Any) -> None:
    costs: list[float] = []

    def tune(space: Any, runner: Any, options: Any) -> None:
        cost = CostFunc(space, options, runner)
        costs.extend(cost.eval_all(space.list[:2]))

    strategy = mine(tune)
    first, _second = strategy.ask(2)
    strategy.tell([Trial(first, TrialState.OK, (1e-3,))])
    assert strategy.ask(2) == []
    assert costs[:2] == [1.0, sys.float_info.max]


@pytest.mark.parametrize(
    ("algorithm", "options", "said", "cure"),
    [
        ("psso", {}, "no strategy 'psso'", "pso"),
        ("pso", {"time_limit": 3.0}, "budget of the run", ""),
        ("pso", {"popsise": 3}, "popsise", "strategy_options"),
    ],
)
def test_wrong_options_are_refused(
    algorithm: str, options: dict[str, Any], said: str, cure: str
) -> None:
    with pytest.raises(SearchError) as caught:
        make(algorithm, **options).ask(1)
    assert said in caught.value.what
    assert cure in str(caught.value.cure)
