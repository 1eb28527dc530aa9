"""Large datasets: rows that are held, early stopping, and a GPU that is not there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from made_autotvm import write_autotvm

from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import RecipeError
from toolkit.training import train_throughput
from toolkit.training.models import MODELS
from toolkit.training.models.base import TrainingRows, part_tasks
from toolkit.training.recipes.recipe import ModelOptions, Recipe
from toolkit.training.table.gather import candidate_counts, gather, share_of
from toolkit.training.table.table import Table, fastest_and_drawn, sample_rows


def test_a_table_holds_so_many_rows_and_each_tasks_best(made_dataset: Dataset) -> None:
    whole, _ = gather(made_dataset)
    few, _ = gather(made_dataset, most=300)
    assert len(whole) > 600
    assert 200 < len(few) <= 330
    assert few.task_ids == whole.task_ids
    assert few.columns == whole.columns
    counts = candidate_counts(made_dataset, whole.task_ids)
    assert sum(counts.values()) == len(whole)
    for number in range(len(few.task_ids)):
        mine, all_ = few.task == number, whole.task == number
        assert np.nanmin(few.latency_s[mine]) == np.nanmin(whole.latency_s[all_])
        assert 2 * np.nanmedian(few.latency_s[mine]) > np.nanmedian(whole.latency_s[all_])
    assert set(rows_of(few)) <= set(rows_of(whole))
    again, _ = gather(made_dataset, most=300)
    assert rows_of(again) == rows_of(few)
    plenty, _ = gather(made_dataset, most=10**6)
    assert rows_of(plenty) == rows_of(whole)


def rows_of(table: Table) -> list[tuple[int, bytes, bytes]]:
    """What a table says of each candidate."""
    rows = zip(table.task.tolist(), table.features, table.latency_s, strict=True)
    return [(task, features.tobytes(), latency.tobytes()) for task, features, latency in rows]


@pytest.mark.parametrize(
    ("counts", "most", "share"),
    [([10, 100, 1000], 2000, 1000), ([10, 100, 1000], 310, 200), ([50, 50], 60, 30), ([], 9, 10)],
)
def test_small_tasks_keep_all_they_have(counts: list[int], most: int, share: int) -> None:
    assert share_of(counts, most) == share
    if share > 10:
        assert sum(min(count, share) for count in counts) <= most


@pytest.mark.parametrize("keep", [1, 2, 4, 6])
def test_of_a_small_sketch_the_fastest_is_kept(keep: int) -> None:
    """It may be the best of its task, which all others are measured by."""
    latency = np.array([5.0, 3.0, np.nan, 1.0, 4.0, 2.0])
    for key in range(20):
        picked, weight = fastest_and_drawn(latency, keep, [key])
        assert len(set(picked.tolist())) == len(weight) == keep
        assert 3 in picked and weight[picked == 3] == 1


def test_training_says_what_it_left_out(made_dataset: Dataset, quick: Recipe) -> None:
    data = quick.data.model_copy(update={"table_rows": 1000})
    result = train_throughput(made_dataset, quick.model_copy(update={"data": data}), threads=1)
    whole = train_throughput(made_dataset, quick, threads=1)
    assert result["recorded_candidates"] == whole["recorded_candidates"] >= whole["candidates"]
    assert result["candidates"] < whole["candidates"]
    assert result["top1"] > result["baseline_constant"]["top1"] + 0.1


def rows_with_noise(tasks: int = 16, each: int = 60) -> TrainingRows:
    """One column that tells something, and many that tell nothing but of their own task."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(tasks), each)
    features = rng.standard_normal((tasks * each, 30)).astype(np.float32)
    target = features[:, 0] + 3 * rng.standard_normal(len(group))
    return TrainingRows(features, target, np.ones(len(group)), group)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("objective", ["squared", "lambdarank"])
def test_early_stopping_stops_where_other_tasks_gain_nothing(library: str, objective: str) -> None:
    rows = rows_with_noise()
    model = MODELS.get(library)
    options = ModelOptions(library=library, objective=objective, rounds=400)  # type: ignore[arg-type]

    def rounds(fitted: object) -> int:
        booster = fitted._booster  # type: ignore[attr-defined]
        if library == "lightgbm":
            return int(booster.num_trees())
        return int(booster.num_boosted_rounds())

    def fit(**more: int) -> object:
        own = options.model_copy(update=more)
        return model.fit(rows, own, seed=0, threads=1, device="cpu")

    assert rounds(fit()) == 400
    stopped = fit(early_stopping=10)
    assert 1 <= rounds(stopped) < 200
    assert np.array_equal(
        stopped.predict(rows.features),  # type: ignore[attr-defined]
        fit(early_stopping=10).predict(rows.features),  # type: ignore[attr-defined]
    )


def test_what_stops_is_whole_tasks() -> None:
    rows = rows_with_noise()
    parts = part_tasks(rows, seed=3)
    assert parts is not None
    known, held = parts
    assert len(np.unique(held.group)) == 2
    assert not set(known.group.tolist()) & set(held.group.tolist())
    assert len(known.target) + len(held.target) == len(rows.target)
    one = TrainingRows(rows.features[:5], rows.target[:5], rows.weight[:5], rows.group[:5])
    assert part_tasks(one, seed=0) is None


class NoDriver:
    """A CUDA driver that sees no device."""

    def __init__(self, name: str) -> None:
        assert name == "libcuda.so.1"

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, count: object) -> int:
        return 0


def no_library(name: str) -> None:
    raise OSError(name)


@pytest.mark.parametrize(
    ("cuda", "driver", "told"),
    [
        (False, NoDriver, "built without CUDA"),
        (True, NoDriver, "no GPU that CUDA sees"),
        (True, no_library, "no GPU that CUDA sees"),
    ],
)
def test_a_gpu_that_is_not_there_is_no_processor(
    made_dataset: Dataset,
    quick: Recipe,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cuda: bool,
    driver: Callable[[str], Any],
    told: str,
) -> None:
    """XGBoost itself would train on the processor and say nothing."""
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": cuda})
    load = ctypes.CDLL

    def other(name: str, *rest: Any, **more: Any) -> Any:
        return driver(name) if name == "libcuda.so.1" else load(name, *rest, **more)

    monkeypatch.setattr(ctypes, "CDLL", other)
    model = ModelOptions(library="xgboost", rounds=2)
    recipe = quick.model_copy(update={"models": (model,), "device": "cuda"})
    with pytest.raises(RecipeError, match=told) as raised:
        train_throughput(made_dataset, recipe, tmp_path / "model")
    assert "device = 'cpu'" in str(raised.value)
    assert not (tmp_path / "model").exists()


def test_a_machines_name_changes_neither_draws_nor_order(tmp_path: Path, quick: Recipe) -> None:
    write_autotvm(tmp_path / "log.json", noise=0.01, failing=0.02)
    tables = []
    for name in ("one", "another"):
        ingest([tmp_path / "log.json"], tmp_path / name, machine=name)
        dataset = open_dataset(tmp_path / name)
        assert {task.machine for task in dataset.tasks().values()} == {name}
        tables.append(gather(dataset, most=300)[0])
    first, second = tables
    assert first.task_ids != second.task_ids
    assert first.workloads == second.workloads
    assert np.array_equal(first.latency_s, second.latency_s, equal_nan=True)
    assert np.array_equal(first.features, second.features, equal_nan=True)
    good = np.flatnonzero(first.good)
    drawn, _ = sample_rows(first, good, 30, 10**6, 0)
    assert np.array_equal(drawn, sample_rows(second, good, 30, 10**6, 0)[0])
    assert len(drawn) < len(good)
