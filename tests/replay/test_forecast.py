"""Forecasting live runs: the noise read out of a record, and intervals that keep their promise."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_tables as toy
from benchmarks.agreement import forecast_values, values

from toolkit.errors import DatasetError, SearchError
from toolkit.records import Candidate, TrialState
from toolkit.replay import RecordedSpace, RecordedTable, simulate
from toolkit.replay.forecast.forecast import ForecastOracle, chosen_share, forecast, seen_scores
from toolkit.replay.record.noise import PROBABILITIES
from toolkit.replay.record.readings import PRIOR_FREEDOM, PosteriorDraw, Readings, readings_of
from toolkit.replay.scenario import Scenario, TaskChoice, parse_scenario

EVERY = list(product(toy.TILES, toy.TILES, toy.UNROLLS))


def truth(number: int = 0) -> np.ndarray:
    """Logarithm of each candidate's latency in the order of ``EVERY``; NaN where it fails."""
    return np.log([np.nan if x == 16 else toy.latency(x, y, u, number) for x, y, u in EVERY])


def measured(
    seed: int, *, number: int = 0, occasions: int = 3, level: float = 0.0, noise: float = 0.05
) -> RecordedTable:
    """A record of the toy space with a level for each occasion and noise for each reading."""
    rng, task, rows = np.random.default_rng([seed, number]), toy.toy_task(number), []
    for _ in range(occasions):
        seconds = np.exp(
            truth(number) + level * rng.standard_normal() + noise * rng.standard_normal(len(EVERY))
        )
        for (x, y, u), value in zip(EVERY, seconds.tolist(), strict=True):
            rows.append(toy.row(task, (0, x, 0, y, u), None if x == 16 else value, len(rows)))
    return RecordedTable.from_records(toy.records(rows), task, {"s0": toy.SKETCH})


def scenario(strategies: tuple[str, ...], evaluations: int) -> Scenario:
    content = {"name": "test", "batch_size": 5, "stop_at_best": False, "seeds": 1}
    chosen = [{"name": name} for name in strategies]
    return parse_scenario({**content, "budget": {"evaluations": evaluations}, "strategy": chosen})


def known(log_latency: np.ndarray, noise: np.ndarray) -> Readings:
    """Readings that leave nothing open: of these latencies, with this noise one after the other."""
    first = int(np.flatnonzero(np.isfinite(log_latency))[0])
    return Readings(
        latency=np.repeat(log_latency[:, None], len(PROBABILITIES), axis=1),
        seen=noise + log_latency[first],
        owner=np.full(len(noise), first),
        level=0.0,
        freedom=1,
        occasions=1,
    )


def middle(readings: Readings) -> np.ndarray:
    """Median of each candidate's latency."""
    return readings.latency[:, len(PROBABILITIES) // 2]


def test_noise_and_levels_are_told_apart() -> None:
    tables = {str(n): measured(1, number=n, occasions=6, level=0.2, noise=0.04) for n in range(12)}
    found = readings_of(tables)
    for key, readings in found.items():
        assert readings.freedom == PRIOR_FREEDOM + 12 * 5 and readings.occasions == 6
        assert readings.level == pytest.approx(0.2, rel=0.25)
        assert readings.noise == pytest.approx(0.04, rel=0.2)
        draw = readings.draw(np.random.default_rng(0))
        assert len(draw.noise) == 6 * np.isfinite(truth()).sum()
        assert abs(draw.noise.mean()) < 0.01
        off = middle(readings) - truth_of(RecordedSpace(tables[key]), int(key))
        fine = np.isfinite(off)
        assert fine.tolist() == np.isfinite(tables[key].value_s).tolist()
        assert np.isnan(draw.log_latency).tolist() == (~fine).tolist()
        # Up to one level, which no record can know, they are off as far as is said.
        assert off[fine].std() == pytest.approx(0.04 / np.sqrt(6), rel=0.3)
        again = [readings.draw(np.random.default_rng(i)).log_latency[fine] for i in range(200)]
        assert np.std(again, axis=0).mean() == pytest.approx(0.04 / np.sqrt(6), rel=0.3)


def test_a_slow_reading_makes_the_others_no_luckier() -> None:
    """One reading in six is a tenth slower: the rest is known to a percent, and none is faster."""
    rng, task, rows = np.random.default_rng(11), toy.toy_task(), []
    latencies = np.exp(0.5 * rng.standard_normal(150))
    for _ in range(3):
        slow = rng.random(150) < 1 / 6
        seconds = latencies * np.exp(0.01 * rng.standard_normal(150) + 0.1 * slow)
        for i, value in enumerate(seconds.tolist()):
            rows.append(toy.row(task, (0, i + 1, 0, 1, 0), 1e-4 * value, len(rows)))
    table = RecordedTable.from_records(toy.records(rows), task, {"s0": toy.SKETCH})
    readings = readings_of({"a": table})["a"]
    off = middle(readings) - np.log(1e-4 * latencies)
    off -= np.median(off)
    logs = np.log(table.latency_s).reshape(150, 3)
    plain = logs.mean(axis=1) - np.log(1e-4 * latencies)
    assert np.abs(off).mean() < 0.6 * np.abs(plain - np.median(plain)).mean()
    noise = readings.draw(rng).noise
    noise -= np.median(noise)
    # About the means of their candidates they would lie 0.03 below.
    assert np.quantile(noise, 0.01) > -0.045
    about = (logs - logs.mean(axis=1)[:, None]).ravel()
    assert np.quantile(about - np.median(about), 0.01) < -0.05
    assert np.quantile(noise, 0.95) == pytest.approx(0.1, abs=0.02)
    low, high = readings.latency[:, [3, -4]].T
    inside = (low <= np.log(1e-4 * latencies)) & (np.log(1e-4 * latencies) <= high)
    assert 0.82 <= inside.mean() <= 0.98


def test_a_level_is_the_machines_own() -> None:
    tables = {str(n): measured(2, number=n, level=0.2 * (n % 2)) for n in range(8)}
    for number, table in tables.items():
        object.__setattr__(table.task, "machine", f"machine-{int(number) % 2}")
    levels = {key: readings.level for key, readings in readings_of(tables).items()}
    assert max(levels[str(n)] for n in (0, 2, 4, 6)) < 0.03
    assert min(levels[str(n)] for n in (1, 3, 5, 7)) > 0.08


def test_candidates_that_were_read_as_fast_are_expected_to_be_slower() -> None:
    """Truly alike candidates, read three times: the fastest reading is luck, and known as such."""
    rng, task, rows = np.random.default_rng(3), toy.toy_task(), []
    latencies = np.exp(0.1 * rng.standard_normal(300))
    for _ in range(3):
        for i, latency in enumerate(latencies):
            seconds = 1e-4 * latency * float(np.exp(0.15 * rng.standard_normal()))
            rows.append(toy.row(task, (0, i + 1, 0, 1, 0), seconds, len(rows)))
    table = RecordedTable.from_records(toy.records(rows), task, {"s0": toy.SKETCH})
    readings = readings_of({task.task_id: table})[task.task_id]
    plain = np.array(
        [
            np.log(table.latency_s[table.offsets[i] : table.offsets[i + 1]]).mean()
            for i in range(300)
        ]
    )
    fastest = np.argsort(plain)[:15]
    true = np.log(1e-4 * latencies)
    lucky = (plain - true)[fastest].mean()
    assert lucky < -0.04
    assert abs((middle(readings) - true)[fastest].mean()) < 0.7 * abs(lucky)
    error = lambda centre: float(((centre - true) ** 2).mean())  # noqa: E731
    assert error(middle(readings)) < error(plain)


def test_a_record_with_one_reading_a_program_says_nothing_of_noise() -> None:
    once = measured(4, occasions=1)
    with pytest.raises(DatasetError, match="--occasions 3"):
        readings_of({"a": once})
    assert list(readings_of({"a": once, "b": measured(4, number=1)})) == ["b"]


def test_every_measurement_is_a_fresh_reading_of_the_draw() -> None:
    space = RecordedSpace(measured(5))
    log_latency = np.log(np.arange(1.0, len(space.table) + 1))
    oracle = ForecastOracle(space, PosteriorDraw(log_latency, np.array([-0.01, 0.01])), seed=1)
    trials = [trial for _ in range(40) for trial in oracle.measure(space.candidates())]
    for number, candidate in enumerate(space.candidates()):
        mine = [trial for trial in trials if trial.candidate == candidate]
        if np.isnan(space.table.value_s[number]):
            assert {trial.state for trial in mine} == {TrialState.COMPILE}
            assert {trial.latency_s for trial in mine} == {None}
        else:
            expected = {(number + 1) * float(np.exp(e)) for e in (-0.01, 0.01)}
            assert sorted({t.latency_s for t in mine}) == pytest.approx(sorted(expected))
    outside = Candidate("never", "s0", (0, 3, 0, 3, 0))
    assert oracle.measure([outside]) == [] and len(oracle.missed_at) == 1
    strict = ForecastOracle(space, PosteriorDraw(log_latency, np.zeros(1)), missing="error")
    with pytest.raises(SearchError, match="never recorded"):
        strict.measure([outside])


def test_a_run_meets_a_stretch_of_the_noise_as_it_was_recorded() -> None:
    """A machine that is slow for many readings in a row is so in the runs that are forecast."""
    rng, task, rows = np.random.default_rng(7), toy.toy_task(), []
    for reading in range(3 * len(EVERY)):
        x, y, u = EVERY[reading % len(EVERY)]
        slow = 0.2 * np.sin(reading / 11) + 0.01 * rng.standard_normal()
        seconds = None if x == 16 else toy.latency(x, y, u) * float(np.exp(slow))
        rows.append(toy.row(task, (0, x, 0, y, u), seconds, reading))
    table = RecordedTable.from_records(toy.records(rows), task, {"s0": toy.SKETCH})
    space, readings = RecordedSpace(table), readings_of({"a": table})["a"]
    draw = PosteriorDraw(np.zeros(len(table)), readings.draw(rng).noise)
    good = [c for c, v in zip(space.candidates(), table.value_s, strict=True) if v == v]

    def run(seed: int, pace: float = 1.0) -> np.ndarray:
        oracle = ForecastOracle(space, draw, seed=seed, pace=pace)
        return np.log([t.latency_s for _ in range(5) for t in oracle.measure(good[:17])])

    alike = [np.corrcoef(seen[:-1], seen[1:])[0, 1] for seen in map(run, range(20))]
    assert np.median(alike) > 0.8
    # Runs begin anywhere; one that is over sooner meets less change than one that takes longer.
    firsts = [run(seed)[0] for seed in range(40)]
    assert 0.2 < np.mean(np.array(firsts) > 0) < 0.8
    quick, slow = (np.mean([run(seed, pace).std() for seed in range(20)]) for pace in (0.05, 1.0))
    assert quick < 0.5 * slow


class Exact(Readings):
    """Latencies that are open, read without noise."""

    def draw(self, rng: np.random.Generator) -> PosteriorDraw:
        return replace(super().draw(rng), noise=np.zeros(1))


def test_strategies_meet_the_same_draws_and_the_same_seeds_give_the_same() -> None:
    table = measured(6)
    space, readings = RecordedSpace(table), readings_of({"a": table})["a"]
    # Readings without noise of their own show the draw itself.
    exact = Exact(**vars(readings))
    plan = scenario(("random", "grid"), len(table))
    drawn = {
        choice.label: forecast(space, exact, choice, plan, draws=3, runs=2)
        for choice in plan.strategies
    }
    again = forecast(space, exact, plan.strategies[0], plan, draws=3, runs=2)
    for number in range(3):
        (first, slower), (second, _) = drawn["random"][number]
        assert not np.array_equal(first, second, equal_nan=True)
        assert np.array_equal(np.sort(first), np.sort(second), equal_nan=True)
        assert np.array_equal(np.sort(first), np.sort(drawn["grid"][number][0][0]), equal_nan=True)
        assert np.array_equal(first, again[number][0][0], equal_nan=True)
        assert slower == pytest.approx(first / np.nanmin(first), nan_ok=True)
        assert chosen_share(drawn["random"][number][0]) == pytest.approx(1.0)
    # A scenario that ends at the best recorded candidate does not end these runs.
    early = plan.model_copy(update={"stop_at_best": True})
    same = forecast(space, exact, early.strategies[0], early, draws=1, runs=1)
    assert np.array_equal(same[0][0], drawn["random"][0][0], equal_nan=True)
    one, two = (np.nanmin(drawn["grid"][number][0][0]) for number in (0, 1))
    assert one != two


def test_scores_of_a_run_by_hand() -> None:
    run = np.array([np.nan, 4.0, 8.0, 2.0])
    auc, final, to_goal = seen_scores(run, 2.0, 6)
    assert auc == pytest.approx((0 + 0.5 + 0.5 + 1 + 1 + 1) / 6)
    assert final == 0.0 and to_goal == 4
    auc, final, to_goal = seen_scores(np.array([4.0, 2.5]), 2.0, 3)
    assert (auc, final, to_goal) == pytest.approx(((0.5 + 0.8 + 0.8) / 3, np.log(0.8), 3))
    assert seen_scores(np.full(3, np.nan), 2.0, 3) == pytest.approx((0, np.log(0.01), 3))


def test_what_a_run_would_choose_is_worth_less_than_its_luckiest_reading_says() -> None:
    """Alike candidates, much noise: the fastest reading says 30 %, and there is nothing to gain."""
    space = RecordedSpace(measured(9, noise=0.2))
    readings = readings_of({"a": space.table})["a"]
    noise = readings.draw(np.random.default_rng(0)).noise
    alike = known(0.0 * middle(readings), noise)
    plan = scenario(("random",), 30)
    for ((run,),) in (forecast(space, alike, c, plan, draws=1, runs=1) for c in plan.strategies):
        assert chosen_share(run) == pytest.approx(1.0)
        assert np.nanmin(run[0]) < 0.8
    noisy = known(truth_of(space), noise)
    shares = [
        chosen_share(run)
        for (run,) in forecast(space, noisy, plan.strategies[0], plan, draws=50, runs=1)
    ]
    assert 0.5 < np.mean(shares) < 0.98
    assert chosen_share(np.full((2, 3), np.nan)) == 0.0


def truth_of(space: RecordedSpace, number: int = 0) -> np.ndarray:
    """Logarithm of each recorded candidate's latency, in the space's order."""
    logs = truth(number)
    by_decisions = {(0, x, 0, y, u): log for (x, y, u), log in zip(EVERY, logs, strict=True)}
    return np.array([by_decisions[c.decisions] for c in space.candidates()])


def test_a_simulation_forecasts_every_strategy_and_leaves_out_what_it_cannot(
    tmp_path: Path,
) -> None:
    dataset = toy.ToyDataset(3, occasions=3, noise=0.05)
    once = toy.toy_task(2).task_id
    # The third task was measured on one occasion only.
    dataset._rows = [r for r in dataset._rows if r["task_id"] != once or r["order"] < len(EVERY)]
    plan = scenario(("random", "grid"), 20).model_copy(
        update={"tasks": TaskChoice(minimum_candidates=5), "seeds": 2, "resamples": 100}
    )
    one = simulate(dataset, plan, out=tmp_path / "one", forecast_draws=12)
    two = simulate(dataset, plan, out=tmp_path / "two", forecast_draws=12, workers=2)
    assert one == two
    found = one["forecast"]
    assert found["left_out"] == [once]
    assert set(found["tasks"]) == {toy.toy_task(0).task_id, toy.toy_task(1).task_id}
    assert len(found["per_task"]) == 4 and set(found["strategies"]) == {"random", "grid"}
    for row in (*found["strategies"].values(), *found["per_task"]):
        for name in ("auc", "final", "chosen"):
            low, high = row[f"{name}_interval"]
            assert 0 < low <= row[name] <= high < 1.5
        assert row["chosen"] <= 1.0
    (pair,) = found["pairs"]
    low, high = pair["difference_interval"]
    assert pair["decided"] == (not low <= 0 <= high)
    assert "forecast" not in simulate(dataset, plan)
    with pytest.raises(DatasetError, match="read twice"):
        simulate(toy.ToyDataset(2), plan, forecast_draws=12)


def test_a_day_is_slow_for_all_tasks_of_a_machine(tmp_path: Path) -> None:
    """Over the mean of tasks the level stays: only the noise is less."""
    plan = scenario(("grid",), 20).model_copy(update={"seeds": 2, "resamples": 100})
    found = simulate(toy.ToyDataset(4, occasions=3, noise=0.001), plan, forecast_draws=40)
    found = found["forecast"]

    def width(row: dict[str, Any]) -> float:
        low, high = row["auc_interval"]
        return float(high - low) / float(row["auc"])

    assert width(found["strategies"]["grid"]) > 0.9 * min(width(r) for r in found["per_task"])


def test_intervals_cover_live_runs_where_the_spread_of_replays_does_not() -> None:
    """Records of a device whose level drifts; live runs are of its true latencies, another day."""
    covered: dict[str, list[bool]] = {"forecast": [], "replays": []}
    plan = scenario(("random",), 15)
    (choice,) = plan.strategies
    order = {(0, x, 0, y, u): i for i, (x, y, u) in enumerate(EVERY)}
    for seed in range(30):
        tables = {str(n): measured(seed, number=n, level=0.1, noise=0.05) for n in range(3)}
        readings, rng = readings_of(tables), np.random.default_rng([seed, 99])
        for key, table in tables.items():
            space = RecordedSpace(table)
            mine = [order[c.decisions] for c in space.candidates()]
            day = truth(int(key))[mine] + 0.1 * rng.standard_normal()
            live = 0.05 * rng.standard_normal(500)
            best = {"t": float(table.best_s or 0)}
            noisy = readings[key]
            once = known(day, live)
            runs = forecast(space, once, choice, plan, draws=1, runs=3)
            seen = values({"t": {"r": runs[0]}}, best, 15)["auc"]["t"]["r"]
            draws = {"t": {"r": forecast(space, noisy, choice, plan, draws=30, runs=3)}}
            # A replay knows of no levels: one, as it was, is as good as several.
            other_days = noisy.levels(rng, 90).reshape(30, 3)
            for name, levels in (("forecast", other_days), ("replays", np.zeros((30, 1)))):
                means = forecast_values(draws, {"t": levels}, best, 15)["auc"]["t"]["r"]
                low, high = np.quantile(means, [0.05, 0.95])
                covered[name].append(bool(low <= seen.mean() <= high))
    assert 0.83 <= np.mean(covered["forecast"]) <= 0.97
    assert np.mean(covered["replays"]) < np.mean(covered["forecast"]) - 0.08
