"""TVM's design spaces: valid samples, single mutations, whole enumerations."""

from __future__ import annotations

import numpy as np

from toolkit.live.space.choices import choices
from toolkit.live.space.design import DesignSpace
from toolkit.live.workloads.named import parse_workload


def _values(chosen: list) -> dict:
    return {c.position: c.value for c in choices(chosen)}


def test_samples_are_valid_and_repeatable(design: DesignSpace) -> None:
    drawn = [design.sample(np.random.default_rng(7)) for _ in range(2)]
    assert drawn[0] is not None and drawn[1] is not None
    assert drawn[0].key == drawn[1].key
    again = design.realise(drawn[0].sketch, drawn[0].chosen)
    assert again is not None and again.key == drawn[0].key


def test_a_mutation_changes_one_decision(design: DesignSpace) -> None:
    rng = np.random.default_rng(3)
    changed = 0
    for _ in range(12):
        parent = design.sample(rng)
        if parent is None:
            continue
        for choice in choices(parent.chosen):
            mutant = design.mutate(parent.sketch, parent.chosen, choice.position, rng)
            if mutant is None:
                continue
            before, after = _values(parent.chosen), _values(mutant.chosen)
            assert {p for p in before if before[p] != after[p]} == {choice.position}
            changed += 1
    assert changed > 12


def test_an_enumeration_holds_every_sample(target: str) -> None:
    space = DesignSpace(parse_workload("norm_bmn:2,5,7")[0].module, target)
    designs = space.enumerate(2000)
    assert designs is not None
    keys = {design.key for design in designs}
    assert len(keys) == len(designs)
    rng = np.random.default_rng(0)
    drawn = [design for design in (space.sample(rng) for _ in range(200)) if design is not None]
    assert {design.key for design in drawn} <= keys


def test_a_space_that_is_too_large_is_not_enumerated(design: DesignSpace) -> None:
    assert design.enumerate(5) is None


def test_what_does_not_belong_is_refused(design: DesignSpace) -> None:
    parent = next(d for d in (design.sample(np.random.default_rng(i)) for i in range(9)) if d)
    instructions, decisions = parent.chosen
    wrong = [[p, [3] * len(v) if isinstance(v, list) else v] for p, v in decisions]
    assert design.realise(parent.sketch, [instructions, wrong]) is None
