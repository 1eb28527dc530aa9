"""Neighbour sets and the loss of differences, against all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import RecipeError
from toolkit.features.base import CandidateGroup
from toolkit.records import Knob, Sketch, Task
from toolkit.training.models import MODELS
from toolkit.training.models.base import TrainingRows
from toolkit.training.recipes.recipe import ModelOptions
from toolkit.training.table.neighbours import LEVEL_SHARE, Cliques, find_cliques, neighbour_loss

TASK = Task("t", "autotvm", "w", [], "llvm", "llvm")
SKETCH = Sketch(
    "s",
    "autotvm",
    "[]",
    (Knob("a", "tile", 0, 2), Knob("b", "unroll", 2, 1), Knob("c", "categorical", 3, 1)),
)
FREE = [1, 2, 3]


def drawn_groups(seed: int, n: int) -> tuple[list[tuple[int, CandidateGroup]], np.ndarray]:
    """Two groups of distinct candidates one after the other, and some of their rows."""
    rng = np.random.default_rng(seed)
    groups, start = [], 0
    for _ in range(2):
        values = np.unique(rng.integers(1, 4, (n, 3)), axis=0)
        decided = np.column_stack([np.zeros(len(values), dtype=np.int64), values])
        groups.append((start, CandidateGroup(TASK, SKETCH, decided)))
        start += len(decided)
    rows = np.flatnonzero(rng.random(start) < 0.7)
    return groups, rows


def pairs_of(cliques: Cliques) -> set[tuple[int, int]]:
    found = set()
    for number in range(len(cliques.size)):
        members = sorted(cliques.row[cliques.clique == number].tolist())
        assert len(members) == cliques.size[number] >= 2
        found |= {(i, j) for i in members for j in members if i < j}
    return found


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 25))
def test_neighbour_sets_hold_all_pairs_with_one_differing_decision(seed: int, n: int) -> None:
    groups, rows = drawn_groups(seed, n)
    expected = set()
    for i, first in enumerate(rows.tolist()):
        for j, second in enumerate(rows.tolist()):
            for start, group in groups:
                inside = range(start, start + len(group))
                if i < j and first in inside and second in inside:
                    a, b = group.decisions[first - start], group.decisions[second - start]
                    if (a[FREE] != b[FREE]).sum() == 1:
                        expected.add((i, j))
    assert pairs_of(find_cliques(groups, rows)) == expected


def test_the_gradient_is_that_of_squared_differences() -> None:
    groups, rows = drawn_groups(0, 12)
    cliques = find_cliques(groups, rows)
    rng = np.random.default_rng(1)
    predicted, target = rng.normal(size=(2, len(rows)))
    weight = np.ones(len(rows))

    def loss(values: np.ndarray) -> float:
        error = values - target
        total = LEVEL_SHARE * (error**2).sum() / 2
        for number in range(len(cliques.size)):
            own = error[cliques.row[cliques.clique == number]]
            # Half the sum over pairs by the size is half the sum of squares about the mean.
            total += ((own[:, None] - own[None]) ** 2).sum() / (4 * len(own))
        return float(total)

    gradient, curvature = neighbour_loss(predicted, target, weight, cliques)
    for i in range(len(rows)):
        step = np.zeros(len(rows))
        step[i] = 1e-3
        up, here, down = (loss(predicted + sign * step) for sign in (1, 0, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-3, abs=1e-6)
        assert curvature[i] == pytest.approx((up - 2 * here + down) / 1e-6, abs=1e-4)


def test_differences_are_learned_where_levels_mislead() -> None:
    """The level of a set is set by a column that says nothing of other sets."""
    rng = np.random.default_rng(2)
    sets, each = 300, 4
    level = np.repeat(rng.normal(size=sets) * 5, each)
    step = rng.normal(size=sets * each)
    features = np.column_stack([step, rng.normal(size=sets * each)]).astype(np.float32)
    number = np.repeat(np.arange(sets), each)
    cliques = Cliques(np.arange(sets * each), number, np.full(sets, each))
    zeros = np.zeros(sets * each, dtype=np.int64)
    rows = TrainingRows(features, level + step, np.ones(sets * each), zeros, cliques)
    options = ModelOptions(
        library="lightgbm", objective="neighbours", rounds=40, params={"num_leaves": 7}
    )
    model = MODELS.get("lightgbm").fit(rows, options, seed=0, threads=1, device="cpu")
    left = cliques.excess(model.predict(features)) - cliques.excess(step)
    assert np.mean(left**2) < 0.1 * np.mean(cliques.excess(step) ** 2)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "ridge"])
def test_without_neighbours_the_objective_is_refused(library: str) -> None:
    rows = TrainingRows(
        np.zeros((4, 1), np.float32), np.zeros(4), np.ones(4), np.zeros(4, np.int64)
    )
    options = ModelOptions(library=library, objective="neighbours", rounds=2)
    with pytest.raises(RecipeError):
        MODELS.get(library).fit(rows, options, seed=0, threads=1, device="cpu")
