"""Verdicts: the error rate is kept, real gains are found, noise is no gain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from toolkit.live.confirm import (
    INCUMBENT,
    TWIN,
    Rules,
    judge,
    may_stop,
    mean_interval,
    overall,
)


def _race(gain: float, noise: float, seed: int, rules: Rules) -> tuple[str, int]:
    """One simulated validation: two challengers, the first faster by ``gain``."""
    rng = np.random.default_rng(seed)
    arms: dict[str, list[float]] = {INCUMBENT: [], TWIN: [], "first": [], "second": []}
    for block in range(1, rules.looks[-1] + 1):
        shared = rng.normal(0.0, 0.05)
        for name, values in arms.items():
            shift = math.log1p(-gain) if name == "first" else 0.0
            values.append(1e-4 * math.exp(shared + shift + rng.normal(0.0, noise)))
        judged = judge(arms, rules, ["first", "second"])
        if may_stop(judged, block, rules):
            break
    verdict = overall(judged)
    assert verdict is not None
    return verdict.verdict, block


def test_without_a_gain_a_false_claim_is_rarer_than_the_error_rate() -> None:
    rules = Rules(error_rate=0.2)
    claims = sum(_race(0.0, 0.02, seed, rules)[0] == "better" for seed in range(150))
    assert claims / 150 <= 0.2


def test_a_clear_gain_is_found_and_ends_early() -> None:
    outcomes = [_race(0.1, 0.01, seed, Rules()) for seed in range(40)]
    assert sum(verdict == "better" for verdict, _ in outcomes) >= 39
    assert np.median([blocks for _, blocks in outcomes]) < Rules().looks[-1]


def test_equal_programs_end_as_not_better_when_noise_is_small() -> None:
    outcomes = [_race(0.0, 0.003, seed, Rules())[0] for seed in range(40)]
    assert outcomes.count("not better") >= 36


def test_a_gain_below_the_floor_is_not_claimed() -> None:
    # The incumbent differs from itself by 4 %: a challenger 3 % faster proves nothing.
    blocks = 36
    rng = np.random.default_rng(0)
    arms = {
        INCUMBENT: list(np.exp(rng.normal(0.0, 0.002, blocks))),
        TWIN: list(np.exp(rng.normal(0.04, 0.002, blocks))),
        "first": list(np.exp(rng.normal(-0.01, 0.002, blocks))),
    }
    assert judge(arms, Rules(), ["first"])[0].verdict != "better"


def test_more_challengers_need_more_evidence() -> None:
    rng = np.random.default_rng(1)
    names = (INCUMBENT, TWIN, "a", "b", "c")
    arms = {name: list(rng.uniform(0.98, 1.02, 9)) for name in names}
    one = judge(arms, Rules(), ["a"])[0]
    three = judge(arms, Rules(), ["a", "b", "c"])[0]
    assert three.confidence > one.confidence
    assert three.interval[1] - three.interval[0] > one.interval[1] - one.interval[0]


def test_the_interval_is_students() -> None:
    low, high = mean_interval(np.array([1.0, 2.0, 3.0, 4.0]), 0.95)
    # t(0.975, 3) = 3.182446, s = 1.290994
    assert (low, high) == pytest.approx((2.5 - 2.054260, 2.5 + 2.054260), abs=1e-5)


def test_one_block_proves_nothing() -> None:
    judged = judge({INCUMBENT: [1.0], TWIN: [1.0], "a": [0.1]}, Rules(), ["a"])
    assert judged[0].verdict == "undecided"
    assert not may_stop(judged, 1, Rules())
