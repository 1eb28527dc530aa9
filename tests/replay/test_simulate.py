"""A whole simulation: same bytes whatever the workers, resumed where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from toy_tables import ToyDataset, toy_table

from toolkit.errors import DatasetError
from toolkit.progress import Silent
from toolkit.records import Candidate, Direction, Task
from toolkit.replay import RecordedSpace, Scenario, TrainedModels, parse_scenario, simulate
from toolkit.replay.execute import task_run
from toolkit.replay.record.models import guides_of
from toolkit.search.base import Space

FILES = ("runs.parquet", "results.parquet", "summary.json")


def scenario(**other: Any) -> Scenario:
    content = {
        "name": "toy",
        "tasks": {"minimum_candidates": 10},
        "strategy": [{"name": "random"}, {"name": "grid"}],
        "batch_size": 8,
        "seeds": 4,
        "resamples": 100,
    }
    return parse_scenario(content | other)


def test_results_say_what_was_measured(tmp_path: Path) -> None:
    summary = simulate(ToyDataset(2), scenario(), out=tmp_path)
    runs = pl.read_parquet(tmp_path / "runs.parquet")
    results = pl.read_parquet(tmp_path / "results.parquet")
    assert set(summary["strategies"]) == {"random", "grid"}
    assert len(results) == 2 * 2 * 4
    reached = results.filter(strategy="random")["evaluations_to_1pct"]
    assert summary["strategies"]["random"]["median_evaluations_to_1pct"] == reached.median()
    assert summary["strategies"]["random"]["reached_share"] == 1.0
    best = runs.group_by("task_id").agg(pl.col("value_s").min())
    for task_id, value in best.iter_rows():
        assert summary["tasks"][task_id]["best_s"] == value
    failed = runs.filter(pl.col("state") == "compile")
    assert len(failed) > 0
    assert failed["latency_s"].null_count() == failed["value_s"].null_count() == len(failed)


def test_intervals_of_a_single_run_are_unknown(tmp_path: Path) -> None:
    summary = simulate(ToyDataset(1), scenario(seeds=1), out=tmp_path)
    ends = [row[key] for row in summary["strategies"].values() for key in row if "interval" in key]
    ends += [pair["difference_interval"] for pair in summary["comparisons"]["pairs"]]
    assert len(ends) > 20
    assert all(end == [None, None] for end in ends)
    for unit in summary["curves"].values():
        for line in unit["strategies"].values():
            assert set(line["low"]) == set(line["high"]) == {None}
            assert None not in line["mean"]
    assert "NaN" not in (tmp_path / "summary.json").read_text()
    assert simulate(ToyDataset(1), scenario(seeds=2), out=tmp_path / "two")["strategies"]["random"][
        "mean_evaluations_to_1pct_interval"
    ] != [None, None]


def test_other_seeds_are_no_wish_for_the_default_baseline() -> None:
    alone = scenario(strategy=[{"name": "grid"}])
    assert simulate(ToyDataset(1), alone, seeds=1)["seeds"] == 1


def test_a_budget_below_the_cheapest_measurement_has_an_ascending_curve() -> None:
    summary = simulate(ToyDataset(1), scenario(budget={"seconds": 0.1}, seeds=1))
    grid = summary["curves"]["seconds"]["grid"]
    assert grid == sorted(grid) and grid[-1] == 0.1


class LikesUnroll:
    """Gains of directions; a model of another task."""

    training_task_ids = frozenset({"another"})

    def for_task(self, task: Task) -> LikesUnroll:
        return self

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        return np.array([1.0 if direction.knob == "unroll" else 0.0 for direction in directions])


@pytest.mark.parametrize(
    ("name", "options", "needs"),
    [
        ("potential", {"levels": 0.5}, "throughput"),
        ("evolutionary", {"mutations": "model"}, "mutation"),
        ("explore-then-droplet", {"strategy": "transfer"}, "throughput"),
    ],
)
def test_what_needs_a_model_by_its_options_is_left_out(
    name: str, options: dict[str, Any], needs: str
) -> None:
    there = TrainedModels(mutation=LikesUnroll() if needs == "throughput" else None)
    plan = scenario(strategy=[{"name": "random"}, {"name": name, "options": options}], seeds=1)
    summary = simulate(ToyDataset(1), plan, models=there)
    (out,) = summary["left_out"]
    assert out["strategy"] == name and f"needs a {needs} model" in out["reason"]
    assert set(summary["strategies"]) == {"random"}


class Calibrated(LikesUnroll):
    """The same, saying how far its gains are to be trusted."""

    temperature = 0.5


def test_a_replay_hands_on_the_temperature_of_a_calibrated_model() -> None:
    space = RecordedSpace(toy_table())
    kept: Any = guides_of(TrainedModels(mutation=Calibrated()), space)["direction_scorer"]
    assert kept.temperature == 0.5
    plain = guides_of(TrainedModels(mutation=LikesUnroll()), space)["direction_scorer"]
    assert not hasattr(plain, "temperature")


def test_one_or_two_workers_give_the_same_bytes(tmp_path: Path) -> None:
    for workers in (1, 2):
        simulate(ToyDataset(3), scenario(), out=tmp_path / str(workers), workers=workers)
    for name in FILES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_an_interrupted_simulation_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(ToyDataset(2), scenario(), out=tmp_path / "whole")
    real, calls = task_run.replay_once, [0]

    def killed(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 6:  # in the middle of the second strategy of the first task
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(task_run, "replay_once", killed)
    with pytest.raises(KeyboardInterrupt):
        simulate(ToyDataset(2), scenario(), out=tmp_path / "cut")
    monkeypatch.setattr(task_run, "replay_once", counting := Counting(real))
    simulate(ToyDataset(2), scenario(), out=tmp_path / "cut")
    assert counting.calls == 12  # the first strategy's four runs were kept
    for name in FILES:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    assert not (tmp_path / "cut" / "parts").exists()


class Counting:
    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)


def test_pieces_of_other_settings_are_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = task_run.replay_once
    monkeypatch.setattr(task_run, "replay_once", failing := FailsAfter(real, 8))
    with pytest.raises(KeyboardInterrupt):
        simulate(ToyDataset(2), scenario(), out=tmp_path)
    assert failing.calls == 9
    monkeypatch.setattr(task_run, "replay_once", counting := Counting(real))
    simulate(ToyDataset(2), scenario(batch_size=4), out=tmp_path)
    assert counting.calls == 16


class FailsAfter(Counting):
    def __init__(self, function: Any, allowed: int) -> None:
        super().__init__(function)
        self.allowed = allowed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.calls == self.allowed:
            self.calls += 1
            raise KeyboardInterrupt
        return super().__call__(*args, **kwargs)


def test_a_scenario_that_no_task_fits_says_so() -> None:
    with pytest.raises(DatasetError, match=r"none of 2 tasks .* 1000 are needed"):
        simulate(ToyDataset(2), scenario(tasks={"minimum_candidates": 1000}))
    with pytest.raises(DatasetError, match="no task that the scenario names"):
        simulate(ToyDataset(2), scenario(tasks={"ids": ["elsewhere"]}))


class Told(Silent):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_named_task_that_is_not_replayed_is_told() -> None:
    data, told = ToyDataset(2), Told()
    plan = scenario(tasks={"ids": [next(iter(data.tasks())), "elsewhere"]}, seeds=1)
    assert len(simulate(data, plan, progress=told)["tasks"]) == 1
    assert any("left out: 1 task " in text and "elsewhere" in text for text in told.said)


def test_what_others_keep_in_a_folder_of_pieces_stays(tmp_path: Path) -> None:
    mine = tmp_path / "parts" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    simulate(ToyDataset(1), scenario(seeds=1), out=tmp_path)
    assert list(mine.parent.iterdir()) == [mine]


def test_pieces_of_a_scenario_of_another_name_are_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = task_run.replay_once
    monkeypatch.setattr(task_run, "replay_once", FailsAfter(real, 8))
    with pytest.raises(KeyboardInterrupt):
        simulate(ToyDataset(2), scenario(), out=tmp_path)
    monkeypatch.setattr(task_run, "replay_once", real)
    simulate(ToyDataset(2), scenario(name="other"), out=tmp_path)
    assert set(pl.read_parquet(tmp_path / "runs.parquet")["scenario"]) == {"other"}


def test_a_run_that_its_seconds_ended_counts_as_the_evaluations_that_it_made() -> None:
    grid = [{"name": "grid"}]
    plan = scenario(budget={"seconds": 3.0}, batch_size=2, seeds=1, strategy=grid)
    row = simulate(ToyDataset(1), plan)["strategies"]["grid"]
    assert row["reached_share"] == 0.0
    assert row["restricted_mean_evaluations_to_1pct"] == row["evaluations"] < 10
