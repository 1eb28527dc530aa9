"""Ceilings of direction models on toys where they are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from toolkit.features.base import CandidateGroup
from toolkit.records import Knob, Sketch, Task
from toolkit.training.evaluate.gain_ceilings import (
    GainSpread,
    blind_gain,
    gain_ceilings,
    neighbour_spread,
)
from toolkit.training.table.mutation_labels import LabelledGroup, label_group
from toolkit.training.table.neighbours import count_values
from toolkit.training.table.table import MeasuredGroup

TASK = Task("00000000aaaaaaaa", "autotvm", "w", [], "llvm", "llvm")


def grid(levels: int, knobs: int, choices: int) -> tuple[Sketch, np.ndarray]:
    """All candidates of some knobs; ``levels`` of ``choices`` values were recorded of each."""
    sketch = Sketch(
        "s",
        "autotvm",
        "[]",
        tuple(
            Knob(f"k{i}", "categorical", i, 1, choices=tuple(range(choices))) for i in range(knobs)
        ),
    )
    decided = np.array(list(itertools.product(range(levels), repeat=knobs)), dtype=np.int64)
    return sketch, decided


def labelled(sketch: Sketch, decided: np.ndarray, log: np.ndarray) -> LabelledGroup:
    return label_group(MeasuredGroup(CandidateGroup(TASK, sketch, decided), np.exp(log)))


def normal_spread(n: int, rho: float, recorded: int, legal: float, seed: int) -> GainSpread:
    """Draw from the model itself: five directions, each with so many recorded neighbours."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(size=(n, 1)) * 0.3)
    means = np.sqrt(rho) * scale * rng.normal(size=(n, 5))
    shrink = max(1 / recorded - 1 / legal, 0.0)
    gain = means + scale * np.sqrt(shrink) * rng.normal(size=(n, 5))
    within = scale**2 * rng.chisquare(recorded - 1, size=(n, 5)) / (recorded - 1)
    none = np.full((n, 5), np.nan)
    return GainSpread(gain, np.full((n, 5), shrink), within, none, none)


@pytest.mark.parametrize(
    ("rho", "recorded", "legal"), [(1.0, 2, np.inf), (0.25, 3, np.inf), (0.1, 2, 8), (0.5, 7, 7)]
)
def test_the_blind_ceiling_of_normal_directions(rho: float, recorded: int, legal: float) -> None:
    """Largest means scale with standard deviations, so the share is a ratio of two of them."""
    spread = normal_spread(20_000, rho, recorded, legal, seed=1)
    found = blind_gain(spread, np.random.default_rng(0)).sum() / spread.gain.max(axis=1).sum()
    error = max(1 / recorded - 1 / legal, 0.0)
    assert found == pytest.approx(np.sqrt(rho / (rho + error)), abs=0.04)


def test_directions_that_are_luck_alone_leave_a_blind_predictor_nothing() -> None:
    spread = normal_spread(20_000, 0.0, 2, np.inf, seed=2)
    found = blind_gain(spread, np.random.default_rng(0)).sum() / spread.gain.max(axis=1).sum()
    assert found < 0.15


def test_a_space_that_was_recorded_completely_has_no_luck_in_it() -> None:
    sketch, decided = grid(4, 3, 4)
    rng = np.random.default_rng(3)
    label = labelled(sketch, decided, rng.normal(size=len(decided)))
    found = gain_ceilings({TASK.task_id: [label]}, np.zeros(1))
    assert found["gain_share_blind_ceiling"] == pytest.approx(1.0)
    assert found["gain_share_ceiling"] == pytest.approx(1.0)
    assert neighbour_spread(label, rng).shrink.max() == 0.0


def test_half_of_the_neighbours_say_nothing_of_the_others_where_all_is_luck() -> None:
    sketch, decided = grid(8, 3, 50)
    rng = np.random.default_rng(4)
    noise = rng.normal(size=len(decided))
    lucky = gain_ceilings({TASK.task_id: [labelled(sketch, decided, noise)]}, np.zeros(1))
    # Half of one knob's values are slow: its direction pays or costs, and each half says so.
    slow = 5.0 * (decided[:, 0] < 4) + 0.1 * noise
    clear = gain_ceilings({TASK.task_id: [labelled(sketch, decided, slow)]}, np.zeros(1))
    assert clear["gain_share_told_half"] > 0.85
    # A slow candidate gains in any direction; beyond that its neighbours say nothing.
    assert lucky["gain_share_told_half"] < 0.35
    assert lucky["gain_share_blind_ceiling"] < clear["gain_share_blind_ceiling"]


def test_noise_lowers_the_ceiling_and_no_repeats_leave_it_unknown() -> None:
    sketch, decided = grid(5, 4, 50)
    rng = np.random.default_rng(5)
    label = labelled(sketch, decided, 0.1 * rng.normal(size=len(decided)))
    shares = [
        gain_ceilings({TASK.task_id: [label]}, np.array([shift]))["gain_share_ceiling"]
        for shift in (0.0, 0.03, 0.3)
    ]
    assert shares[0] == pytest.approx(1.0)
    assert 1.0 > shares[1] > shares[2] > 0.0
    assert gain_ceilings({TASK.task_id: [label]}, np.zeros(0))["gain_share_ceiling"] is None


def test_halves_and_variances_are_those_of_the_neighbours() -> None:
    sketch, decided = grid(6, 2, 6)
    log = np.random.default_rng(6).normal(size=36)
    label = labelled(sketch, decided, log)
    spread = neighbour_spread(label, np.random.default_rng(0))
    for i, k in itertools.product((0, 7, 20), (0, 1)):
        others = [j for j in range(36) if j != i and decided[j, 1 - k] == decided[i, 1 - k]]
        assert spread.within[i, k] == pytest.approx(np.var(log[others], ddof=1))
        # Both halves together are all neighbours: some weighting of the two gives their mean.
        low, high = sorted((spread.half[i, k], spread.other[i, k]))
        if np.isfinite(low + high):
            assert low - 1e-9 <= label.gains.gain[0, i, k] <= high + 1e-9


def test_values_that_a_knob_can_take() -> None:
    assert count_values(Knob("t", "tile", 0, 3), np.array([4, 2, 3])) == 30  # 24 in three parts
    assert count_values(Knob("t", "tile", 0, 2), np.array([0, 2])) == np.inf
    assert count_values(Knob("u", "unroll", 0, 1, choices=(0, 16)), np.array([16])) == 2
    assert count_values(Knob("u", "unroll", 0, 1), np.array([16])) == np.inf
