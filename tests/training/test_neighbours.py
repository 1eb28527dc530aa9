"""Recorded neighbours and their gains against a comparison of all pairs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.records import Knob, Sketch
from toolkit.training.table.mutation_labels import choices
from toolkit.training.table.neighbours import ANY, DOWN, UP, direction_gains, other_values

SKETCH = Sketch(
    "s",
    "autotvm",
    "[]",
    (
        Knob("tile_a", "tile", 0, 3),
        Knob("tile_b", "tile", 3, 2),
        Knob("unroll", "unroll", 5, 1),
        Knob("kind", "categorical", 6, 1),
    ),
)


def brute_force(decisions: np.ndarray, latency: np.ndarray) -> np.ndarray:
    """Mean gain over recorded neighbours, by comparing every pair."""
    n = len(decisions)
    result = np.full((3, n, len(SKETCH.knobs)), np.nan)
    for i in range(n):
        for k, knob in enumerate(SKETCH.knobs):
            found: dict[int, list[float]] = {ANY: [], UP: [], DOWN: []}
            for j in range(n):
                differing = [
                    other
                    for other, o in enumerate(SKETCH.knobs)
                    if tuple(decisions[i, o.free]) != tuple(decisions[j, o.free])
                ]
                if differing != [k] or not np.isfinite(latency[[i, j]]).all():
                    continue
                gain = float(np.log(latency[i]) - np.log(latency[j]))
                found[ANY].append(gain)
                if knob.kind == "categorical":
                    continue
                a, b = (decisions[x, knob.free] for x in (i, j))
                key_a, key_b = ((int(p.prod()), *p.tolist()) for p in (a, b))
                found[UP if key_b > key_a else DOWN].append(gain)
            for way, gains in found.items():
                if gains:
                    result[way, i, k] = np.mean(gains)
    return result


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_gains_are_those_of_all_pairs(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = np.stack([rng.integers(1, 4, max(n, 1)) for _ in range(7)], axis=1)
    free = [1, 2, 4, 5, 6]
    _, first = np.unique(drawn[:, free], axis=0, return_index=True)
    decisions = drawn[np.sort(first)][:n].astype(np.int64)
    latency = np.exp(rng.normal(size=len(decisions)))
    latency[rng.random(len(decisions)) < 0.1] = np.nan
    found = direction_gains(SKETCH, decisions, latency)
    expected = brute_force(decisions, latency)
    assert np.allclose(found.gain, expected, equal_nan=True)
    assert np.array_equal(found.count[ANY] > 0, np.isfinite(expected[ANY]))


def test_unrecorded_directions_are_masked_and_not_zero() -> None:
    decisions = np.array([[0, 1, 1, 0, 1, 0, 5], [0, 1, 1, 0, 2, 0, 5], [0, 2, 2, 0, 2, 16, 7]])
    found = direction_gains(SKETCH, decisions, np.array([2.0, 1.0, 4.0]))
    assert found.gain[ANY, 0, 1] == np.log(2.0)
    assert found.gain[UP, 0, 1] == np.log(2.0)
    assert np.isnan(found.gain[DOWN, 0, 1])
    assert np.isnan(found.gain[:, 2]).all()
    assert np.isnan(found.gain[ANY, 0, [0, 2, 3]]).all()


def test_levels_collect_knobs_into_rules_and_part_ordered_ones_into_ways() -> None:
    decisions = np.array([[0, 1, 1, 0, 1, 0, 5], [0, 1, 1, 0, 2, 0, 5], [0, 1, 2, 0, 1, 0, 5]])
    gains = direction_gains(SKETCH, decisions, np.exp(np.array([0.0, -1.0, -3.0])))
    rules = choices(SKETCH, gains, "rule")
    assert rules.names == ("tile", "unroll", "categorical")
    assert rules.gain[0, 0] == 2.0  # the mean over both tiles' neighbours: 1 and 3
    ways = choices(SKETCH, gains, "way")
    assert ways.names[:2] == ("tile:tile_a:up", "tile:tile_a:down")
    assert ways.names[-1] == "categorical:kind"
    assert ways.gain[0, 0] == 3.0
    assert ways.gain[2, 1] == -3.0


def test_a_million_records_need_no_comparison_of_pairs() -> None:
    """Far more candidates than pairs could be compared for; each has the neighbours it must."""
    grid = np.stack(np.meshgrid(*[np.arange(1, 17)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    sketch = Sketch(
        "s", "autotvm", "[]", tuple(Knob(f"k{i}", "categorical", i, 1) for i in range(4))
    )
    latency = np.exp(grid[:, 0] * 0.1)
    found = direction_gains(sketch, grid.astype(np.int64), latency)
    assert (found.count[ANY] == 15).all()
    expected = grid[:, 0] * 0.1 - (136 - grid[:, 0]) * 0.1 / 15
    assert np.allclose(found.gain[ANY, :, 0], expected)
    assert np.allclose(found.gain[ANY, :, 1:], 0.0, atol=1e-9)


def test_other_values_keep_the_extent_and_all_else() -> None:
    here = np.array([4, 2, 3, 5, 1, 16, 7], dtype=np.int64)
    others = other_values(SKETCH.knobs[0], here)
    assert len(others) == 16  # of the 17 other ways to part 24 in three
    for other in others:
        assert other[:3].prod() == 24
        assert other[1:3].tolist() != [2, 3]
        assert other[3:].tolist() == here[3:].tolist()
    assert other_values(SKETCH.knobs[2], here) == []
    known = Knob("unroll", "unroll", 5, 1, choices=(0, 16, 64))
    assert [int(o[5]) for o in other_values(known, here)] == [0, 64]
    unknown = np.array([0, 2, 3, 5, 1, 16, 7], dtype=np.int64)
    assert other_values(SKETCH.knobs[0], unknown) == []
