"""A grid answers the same whether its points stand in a table or are hashed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from toolkit.search import STRATEGIES
from toolkit.search.moves import lattice
from toolkit.search.moves.lattice import Lattice
from toolkit.search.runner import Budget, SimulatedClock, run
from toolkit.search.strategy import throughput, throughputs
from toolkit.testing.spaces import FiniteSpace, FormulaOracle, finite_space, two_sketch_space


def part_of_a_space() -> FiniteSpace:
    return finite_space(keep=40)


@pytest.mark.parametrize("most_points", [0, 1 << 18], ids=["hashed", "table"])
def test_recorded_points_are_found_and_holes_are_not(
    most_points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lattice, "MOST_POINTS", most_points)
    space = part_of_a_space()
    grid = Lattice(space)
    assert grid.find(grid.points).tolist() == grid.numbers.tolist() == list(range(40))
    every = np.array(list(product(*[range(d) for d in grid.dims.tolist()])))
    found = grid.find(every)
    assert sorted(found[found >= 0].tolist()) == list(range(40))
    candidates = grid.candidates(every)
    assert [c is None for c in candidates] == (found < 0).tolist()
    for point, candidate in zip(every.tolist(), candidates, strict=True):
        if candidate is not None:
            known = grid.decisions(point)
            parts = [p for k in grid.sketch.knobs for p in range(k.free.start, k.free.stop)]
            assert [known[p] for p in parts] == [candidate.decisions[p] for p in parts]


@pytest.mark.parametrize("space", [finite_space, two_sketch_space, part_of_a_space])
def test_genetic_breeds_the_same_by_table_and_by_hash(
    space: Callable[[], FiniteSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    for most_points in (0, 1 << 18):
        monkeypatch.setattr(lattice, "MOST_POINTS", most_points)
        oracle = FormulaOracle()
        strategy = STRATEGIES.get("genetic")(
            space(), {"population": 12, "elites": 2}, np.random.default_rng(3)
        )
        run(strategy, oracle, Budget(60), batch_size=8, clock=SimulatedClock())
        measured.append(oracle.measured)
    assert len(set(measured[0])) > 12  # more than the first generation
    assert measured[0] == measured[1]


def test_throughputs_of_many_are_those_of_each() -> None:
    trials = FormulaOracle().measure(finite_space().candidates())
    assert any(trial.latency_s is None for trial in trials)
    latencies = np.array([trial.latency_s for trial in trials], dtype=np.float64)
    assert throughputs(latencies).tolist() == [throughput(trial) for trial in trials]
