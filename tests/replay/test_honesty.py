"""DESIGN's honesty rules of a replay, each broken on purpose or held against a known record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from toy_tables import SKETCH, ToyDataset, records, replayed, row, toy_rows, toy_table, toy_task

from toolkit.errors import LeakError, SearchError
from toolkit.records import Candidate, TrialState
from toolkit.replay import (
    RecordedOracle,
    RecordedSpace,
    RecordedTable,
    TrainedModels,
    parse_scenario,
    simulate,
)
from toolkit.replay.statistics.metrics import run_metrics
from toolkit.search.base import Space

SKETCHES = {"s0": SKETCH}


def scenario(**other: Any) -> Any:
    content = {
        "name": "toy",
        "tasks": {"minimum_candidates": 2},
        "strategy": [{"name": "random"}],
        "seeds": 2,
        "resamples": 100,
    }
    return parse_scenario(content | other)


def incomplete(keep: int = 40) -> RecordedSpace:
    """A record of only some of the toy candidates."""
    table = RecordedTable.from_records(records(toy_rows()[:keep]), toy_task(), SKETCHES)
    return RecordedSpace(table)


# Rule 1: only recorded measurements count as results.


class Boastful:
    """A model that promises more than anything recorded."""

    training_task_ids: frozenset[str] = frozenset()

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.full(len(candidates), 1e9)

    def for_task(self, task: object) -> Boastful:
        return self


def test_every_reported_latency_was_recorded(tmp_path: Path) -> None:
    data = ToyDataset(2, occasions=3, noise=0.05)
    chosen = scenario(strategy=[{"name": "model-ranked"}, {"name": "annealing"}])
    summary = simulate(data, chosen, models=TrainedModels(throughput=Boastful()), out=tmp_path)
    recorded = set(data.records().collect()["latency_s"].drop_nulls().to_list())
    runs = pl.read_parquet(tmp_path / "runs.parquet")
    assert set(runs["latency_s"].drop_nulls().to_list()) <= recorded
    for task in summary["tasks"].values():
        best = pl.read_parquet(tmp_path / "results.parquet")["best_s"]
        assert best.min() is not None
        assert task["best_s"] > 0
    assert runs["best_s"].min() == min(t["best_s"] for t in summary["tasks"].values())


# Rule 2: proposals outside the record are counted and reported; what happens is the scenario's.


def outside(space: RecordedSpace) -> Candidate:
    composed = space.compose("s0", (0, 4, 0, 8, 48))  # no recorded candidate has unroll 48
    assert composed is not None
    return composed


def test_a_miss_costs_nothing_and_is_counted() -> None:
    space = incomplete()
    inside = space.candidates()[0]
    oracle = RecordedOracle(space)
    trials = oracle.measure([inside, outside(space), space.candidates()[1], outside(space)])
    assert [trial.candidate for trial in trials] == [inside, space.candidates()[1]]
    assert oracle.missed_at == [1, 2]


def test_a_miss_can_be_an_error() -> None:
    space = incomplete()
    with pytest.raises(SearchError, match="never recorded"):
        RecordedOracle(space, missing="error").measure([outside(space)])


def test_a_miss_can_take_the_nearest_recorded_which_is_counted() -> None:
    space = RecordedSpace(toy_table())
    oracle = RecordedOracle(space, missing="nearest")
    wanted = space.compose("s0", (0, 4, 0, 8, 48))
    assert wanted is not None
    (trial,) = oracle.measure([wanted])
    nearest = space.candidates()[
        int(np.searchsorted(space.table.offsets, oracle.occasions[0], side="right")) - 1
    ]
    assert nearest.decisions == (0, 4, 0, 8, 64)  # the same tiles, the nearest unroll
    assert (trial.candidate, oracle.substituted) == (wanted, 1)


def test_coverage_and_bounds_are_reported() -> None:
    chosen = scenario(
        strategy=[{"name": "random"}, {"name": "genetic", "options": {"population": 8}}],
        budget={"evaluations": 40},
        batch_size=8,
    )
    summary = simulate(ToyDataset(2, keep=0.6), chosen)
    random, genetic = summary["strategies"]["random"], summary["strategies"]["genetic"]
    assert (random["coverage"], random["missed"]) == (1.0, 0)
    assert genetic["missed"] > 0
    assert genetic["coverage"] < 1.0
    bounds = genetic["median_evaluations_to_1pct_if_unrecorded"]
    assert bounds["were_best"] <= (genetic["median_evaluations_to_1pct"] or np.inf)


def test_bounds_take_every_miss_as_best_or_as_worst() -> None:
    table = toy_table()
    occasions = [int(table.offsets[i]) for i in np.argsort(-np.nan_to_num(table.value_s, nan=0.0))]
    run = replayed(
        table,
        occasions,
        np.arange(1.0, 76.0).tolist(),
        missed_at=[2, 2, 10],
        proposals=78,
        budget=75,
    )
    metrics = run_metrics(table, run)
    reached = metrics["evaluations_to_1pct"]
    assert isinstance(reached, int)
    assert metrics["lower_bound_to_1pct"] == 3
    assert metrics["upper_bound_to_1pct"] == reached + 3


def test_coverage_counts_substituted_proposals_as_unrecorded() -> None:
    chosen = scenario(
        strategy=[{"name": "genetic", "options": {"population": 8}}],
        baseline="genetic",
        budget={"evaluations": 40},
        missing="nearest",
        batch_size=8,
    )
    summary = simulate(ToyDataset(2, keep=0.6), chosen)["strategies"]["genetic"]
    assert summary["substituted"] > 0
    assert summary["coverage"] < 1.0


def test_without_a_miss_there_is_nothing_to_bound() -> None:
    """A run that never got there and never left the record would not have got there either."""
    table = toy_table()
    worst = int(np.nanargmax(table.value_s))
    run = replayed(table, [int(table.offsets[worst])], [1.0], proposals=1, budget=75)
    metrics = run_metrics(table, run)
    assert metrics["lower_bound_to_1pct"] is metrics["upper_bound_to_1pct"] is None


# Rule 3: "best recorded", never "optimum", unless the space was enumerated.


def test_only_enumerated_tasks_have_an_optimum() -> None:
    for keep, word in ((1.0, "optimum"), (0.5, "best recorded")):
        summary = simulate(ToyDataset(1, keep=keep), scenario())
        (task,) = summary["tasks"].values()
        assert (task["best"], task["enumerated"]) == (word, keep == 1.0)


# Rule 4: models are trained without the judged task, and the run proves it.


class SawTheTask(Boastful):
    def __init__(self, *tasks: str) -> None:
        self.training_task_ids = frozenset(tasks)


class Silent:
    """Does not say what it was trained on."""

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.zeros(len(candidates))

    def for_task(self, task: object) -> Silent:
        return self


@pytest.mark.parametrize("kind", ["throughput", "mutation"])
def test_a_model_that_saw_the_task_is_refused(kind: str) -> None:
    seen = SawTheTask("another", toy_task(1).task_id)
    models = TrainedModels(**{kind: seen})
    with pytest.raises(LeakError, match=toy_task(1).task_id):
        simulate(ToyDataset(2), scenario(), models=models)
    simulate(ToyDataset(1), scenario(), models=TrainedModels(throughput=SawTheTask("another")))


def test_a_model_that_does_not_say_is_refused() -> None:
    with pytest.raises(LeakError, match="does not say"):
        simulate(ToyDataset(1), scenario(), models=TrainedModels(throughput=Silent()))


# Rule 5 (pairing, intervals): see test_statistics.py; here that pairs share their luck.


def test_strategies_under_one_seed_draw_the_same_occasions() -> None:
    space = RecordedSpace(toy_table(occasions=3, noise=0.1))
    every = list(space.candidates())
    first = RecordedOracle(space, seed=4).measure(every)
    second = RecordedOracle(space, seed=4).measure(every[::-1])[::-1]
    assert first == second
    assert first != RecordedOracle(space, seed=5).measure(every)


# Rule 6: noise is drawn where there are occasions, and called unknown where there are none.


def test_occasions_are_drawn_uniformly_and_in_turn() -> None:
    space = RecordedSpace(toy_table(occasions=3, noise=0.1))
    good = int(np.flatnonzero(np.isfinite(space.table.value_s))[0])
    candidate = space.candidates()[good]
    begin, end = space.table.offsets[good : good + 2]
    drawn = [RecordedOracle(space, seed=s) for s in range(300)]
    for oracle in drawn:
        oracle.measure([candidate])
    counts = np.bincount([o.occasions[0] - begin for o in drawn], minlength=3)
    assert counts.min() > 60  # 100 expected, standard deviation 8
    again = RecordedOracle(space, seed=1)
    again.measure([candidate, candidate])
    again.measure([candidate])
    assert sorted(again.occasions) == list(range(begin, end))


def test_one_occasion_is_reported_as_unknown_noise() -> None:
    for occasions, word in ((1, "unknown"), (2, "drawn")):
        summary = simulate(ToyDataset(1, occasions=occasions, noise=0.01), scenario())
        assert next(iter(summary["tasks"].values()))["noise"] == word


def test_a_candidate_that_failed_once_can_fail_in_the_replay() -> None:
    task = toy_task()
    rows = [row(task, (0, 1, 0, 1, 0), 1e-3, 0), row(task, (0, 1, 0, 1, 0), None, 1)]
    space = RecordedSpace(RecordedTable.from_records(records(rows), task, SKETCHES))
    assert space.table.value_s.tolist() == [1e-3]  # the median of the occasions that were ok
    states = {RecordedOracle(space, seed=s).measure(space.candidates())[0].state for s in range(20)}
    assert states == {TrialState.OK, TrialState.COMPILE}


def test_a_value_is_the_median_over_occasions_and_decides_what_counts_as_reached() -> None:
    """A lucky occasion of a slow candidate does not count as reaching the best."""
    task = toy_task()
    slow, fast = (0, 1, 0, 1, 0), (0, 2, 0, 1, 0)
    rows = [row(task, slow, seconds, i) for i, seconds in enumerate((5e-4, 2e-3, 2e-3))]
    rows += [row(task, fast, 1e-3, 3)]
    table = RecordedTable.from_records(records(rows), task, SKETCHES)
    lucky = replayed(table, [0, 3], [1.0, 2.0], proposals=2, budget=2)
    metrics = run_metrics(table, lucky)
    assert metrics["evaluations_to_1pct"] == 2
    assert metrics["incumbent_regret"] == pytest.approx(1.0)  # it would have shipped the slow one


# Rule 7: the protocol stands beside the figures.


def test_repeats_of_the_record_are_reported() -> None:
    summary = simulate(ToyDataset(1), scenario())
    assert next(iter(summary["tasks"].values()))["repeats_in_record"] == [3]
