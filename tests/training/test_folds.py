"""Folds: workloads stay together, sizes are even, and a rare family is spread out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from toolkit.datasets import ingest, open_dataset
from toolkit.training.members.crossfit import assign_folds
from toolkit.training.recipes.recipe import SplitOptions
from toolkit.training.table.gather import gather
from toolkit.training.table.table import Table
from toolkit.workspace import bundled


def table(families: list[float], workloads: list[str] | None = None, column: bool = True) -> Table:
    """Three candidates a task, of the family that is given."""
    count = len(families)
    task = np.repeat(np.arange(count), 3)
    return Table(
        columns=("op_family" if column else "other",),
        features=np.asarray(families, dtype=np.float32)[task][:, None],
        task_ids=tuple(f"t{i}" for i in range(count)),
        task=task,
        workloads=tuple(workloads or (f"w{i:03d}" for i in range(count))),
        machines=("m",) * count,
        latency_s=np.ones(len(task)),
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_rare_family_is_left_out_one_at_a_time(seed: int) -> None:
    families = [7.0] * 40 + [2.0] * 4 + [4.0] * 6
    folds = assign_folds(table(families), SplitOptions(folds=5), seed)
    assert np.bincount(folds).tolist() == [10] * 5
    assert len(set(folds[40:44])) == 4
    assert np.bincount(folds[44:], minlength=5).max() == 2


def test_a_workload_of_two_tasks_is_in_one_fold() -> None:
    families = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    folds = assign_folds(table(families, ["a", "b", "c", "a", "b", "c"]), SplitOptions(folds=3), 0)
    assert folds[:3].tolist() == folds[3:].tolist()
    assert sorted(folds[:3]) == [0, 1, 2]


@pytest.mark.parametrize("families", [[np.nan] * 12, [5.0] * 12])
@pytest.mark.parametrize("column", [True, False])
def test_without_families_folds_are_drawn_all_the_same(families: list[float], column: bool) -> None:
    drawn = [
        assign_folds(table(families, column=column), SplitOptions(folds=4), seed)
        for seed in range(4)
    ]
    assert all(np.bincount(folds).tolist() == [3] * 4 for folds in drawn)
    assert len({tuple(folds) for folds in drawn}) > 1


def test_a_family_is_left_out_as_a_whole() -> None:
    families = [5.0, 7.0, 5.0, 2.0, 7.0, np.nan]
    folds = assign_folds(table(families), SplitOptions(by="family"), 0)
    assert len(set(folds.tolist())) == 4
    for i, j in np.ndindex(6, 6):
        same = families[i] == families[j] or (i, j) == (5, 5)
        assert (folds[i] == folds[j]) == same


def test_families_are_told_by_the_task_where_no_column_tells_them() -> None:
    told = replace(table([1.0, 2.0], column=False), told_families=("conv", "matmul"))
    assert told.families() == ("conv", "matmul")
    assert table([1.0, 2.0], column=False).families() == ("unknown", "unknown")


def test_features_that_name_no_operator_have_the_families_of_those_that_do(
    tmp_path: Path,
) -> None:
    names = ("ansor-epyc-znver5-1core", "epyc-znver3-1core-random")
    ingest([bundled("datasets") / name for name in names], tmp_path / "dataset")
    dataset = open_dataset(tmp_path / "dataset")
    tasks = sorted(dataset.tasks())[::6]
    named, _ = gather(dataset, "auto", tasks, most=1000)
    nameless, _ = gather(dataset, "relations", tasks, most=1000)
    assert "op_family" not in nameless.columns
    assert nameless.families() == named.families()
    assert len(set(named.families())) > 1
