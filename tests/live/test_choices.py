"""Decisions of traces: factorisations, moves, and what a change leaves alone."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from toolkit.live.space.choices import (
    Choice,
    all_values,
    choices,
    factorisations,
    other_values,
    with_value,
    without_postprocessors,
)

TRACE = [
    [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["SamplePerfectTile", ["l1"], [2, 16], ["v2", "v3"]],
        ["SampleCategorical", [], [[0, 16, 64], [0.5, 0.25, 0.25]], ["v4"]],
        ["Annotate", ["b0", "v4"], ["meta_schedule.unroll_explicit"], []],
        ["Annotate", ["b0", 32], ["meta_schedule.parallel"], []],
        ["SampleComputeLocation", ["b0"], [], ["l5"]],
        ["EnterPostproc", [], [], []],
        ["Annotate", ["b0", 4], ["meta_schedule.parallel"], []],
    ],
    [[1, [8, 4]], [2, 1], [5, -1]],
]


@given(st.integers(1, 720), st.integers(1, 4), st.sampled_from([1, 4, 64, 720]))
def test_factorisations_are_all_and_only_the_products(extent: int, levels: int, most: int) -> None:
    found = factorisations(extent, levels, most)
    assert len(set(found)) == len(found)
    assert all(math.prod(f) == extent and len(f) == levels and f[-1] <= most for f in found)
    if levels == 2:
        expected = [d for d in range(1, extent + 1) if extent % d == 0 and extent // d <= most]
        assert sorted(f[0] for f in found) == expected


@given(st.lists(st.integers(1, 12), min_size=2, max_size=4))
def test_moving_a_factor_keeps_the_extent(factors: list[int]) -> None:
    choice = Choice(0, "tile", factors, (len(factors), 64))
    for moved in other_values(choice):
        assert math.prod(moved) == math.prod(factors)
        assert moved != factors
        assert sum(a != b for a, b in zip(moved, factors, strict=True)) == 2


def test_choices_stop_at_the_postprocessors() -> None:
    found = choices(TRACE)
    assert [c.kind for c in found] == ["tile", "unroll", "parallel", "compute_location"]
    assert [c.position for c in found] == [1, 2, 4, 5]
    assert list(all_values(found[1])) == [0, 1, 2]


def test_changing_one_decision_changes_nothing_else() -> None:
    tile, unroll, parallel, _ = choices(TRACE)
    for choice, value in ((tile, [4, 8]), (unroll, 2), (parallel, 64)):
        changed = with_value(TRACE, choice, value)
        before = {c.position: c.value for c in choices(TRACE)}
        after = {c.position: c.value for c in choices(changed)}
        assert {p for p in before if before[p] != after[p]} == {choice.position}
        assert after[choice.position] == value
    assert TRACE[1][0] == [1, [8, 4]], "the original stays as it was"


def test_postprocessors_are_cut_off() -> None:
    cut = without_postprocessors(TRACE)
    assert [i[0] for i in cut[0]][-1] == "SampleComputeLocation"
    assert cut[1] == TRACE[1]
