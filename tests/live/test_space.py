"""The live space keeps the contract of a Space."""

from __future__ import annotations

import numpy as np
import pytest

from toolkit.errors import SearchError
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import REDRAWS, MetaScheduleSpace
from toolkit.search.base import Space


@pytest.fixture
def space(design: DesignSpace) -> MetaScheduleSpace:
    return MetaScheduleSpace(design, machine="bench")


def test_it_is_a_space(space: MetaScheduleSpace) -> None:
    assert isinstance(space, Space)
    assert space.size is None
    with pytest.raises(SearchError):
        space.candidates()


def test_samples_are_distinct_and_of_the_sketch_that_was_named(space: MetaScheduleSpace) -> None:
    rng = np.random.default_rng(0)
    drawn = space.sample(rng, 12)
    assert len({c.candidate_id for c in drawn}) == len(drawn) == 12
    wanted = space.sketches[-1].sketch_id
    assert {c.sketch_id for c in space.sample(rng, 5, wanted)} == {wanted}


def _changed(space: MetaScheduleSpace, one, other) -> list[str]:
    sketch = next(s for s in space.sketches if s.sketch_id == one.sketch_id)
    return [
        knob.name for knob in sketch.knobs if one.decisions[knob.free] != other.decisions[knob.free]
    ]


def test_a_direction_changes_its_own_knob(space: MetaScheduleSpace) -> None:
    rng = np.random.default_rng(1)
    moved = 0
    for candidate in space.sample(rng, 6):
        for direction in space.directions(candidate):
            mutant = space.mutate(candidate, direction, rng)
            if mutant is not None:
                assert _changed(space, candidate, mutant) == [direction.knob]
                moved += 1
    assert moved > 6


def test_neighbours_differ_in_one_decision(space: MetaScheduleSpace) -> None:
    candidate = space.sample(np.random.default_rng(2), 1)[0]
    found = space.neighbours(candidate)
    assert found
    assert all(len(_changed(space, candidate, other)) == 1 for other in found)
    knob = _changed(space, candidate, found[0])[0]
    assert {tuple(_changed(space, candidate, o)) for o in space.neighbours(candidate, knob)} == {
        (knob,)
    }


def test_a_stranger_is_a_named_error(space: MetaScheduleSpace, design: DesignSpace) -> None:
    other = MetaScheduleSpace(design, machine="another machine")
    stranger = other.sample(np.random.default_rng(0), 1)[0]
    with pytest.raises(SearchError):
        space.realise(stranger)


def test_features_follow_the_candidates(space: MetaScheduleSpace) -> None:
    drawn = space.sample(np.random.default_rng(4), 9)
    matrix = space.features(drawn)
    assert matrix.shape[0] == 9 and matrix.shape[1] > 5
    backwards = space.features(drawn[::-1])
    np.testing.assert_array_equal(matrix[::-1], backwards)


def test_a_pool_is_the_same_whether_or_not_its_draws_are_postprocessed(
    design: DesignSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pool() -> list[str]:
        drawn = MetaScheduleSpace(design).sample(np.random.default_rng(3), 3 * REDRAWS)
        return [candidate.candidate_id for candidate in drawn]

    asked = []
    postprocessed = DesignSpace._postprocessed
    monkeypatch.setattr(
        DesignSpace, "_postprocessed", lambda *one: asked.append(1) or postprocessed(*one)
    )
    quick = pool()
    assert not asked
    monkeypatch.setattr("toolkit.live.space.space.runs_on_cpu", lambda target: False)
    assert pool() == quick and asked
