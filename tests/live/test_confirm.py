"""Verdicts: the error rate is kept, real gains are found, noise is no gain."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import orjson
import pytest

from toolkit.errors import LiveError
from toolkit.live.confirm.rules import (
    INCUMBENT,
    TWIN,
    Rules,
    judge,
    may_stop,
    overall,
    trimmed_interval,
)
from toolkit.live.confirm.verdict import Confirmation, Screening, verdict_of
from toolkit.live.measure.program import REFUSED
from toolkit.records import Task


def _race(gain: float, noise: float, seed: int, rules: Rules) -> tuple[str, int]:
    """One simulated validation: two challengers, the first faster by ``gain``."""
    rng = np.random.default_rng(seed)
    arms: dict[str, list[float]] = {INCUMBENT: [], TWIN: [], "first": [], "second": []}
    for block in range(1, rules.looks[-1] + 1):
        shared = rng.normal(0.0, 0.05)
        for name, values in arms.items():
            shift = math.log1p(-gain) if name == "first" else 0.0
            values.append(1e-4 * math.exp(shared + shift + rng.normal(0.0, noise)))
        if block not in rules.looks:
            continue
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


def test_with_nothing_to_trim_the_interval_is_students() -> None:
    centre, low, high = trimmed_interval(np.array([1.0, 2.0, 3.0, 4.0]), 0.95)
    # t(0.975, 3) = 3.182446, s = 1.290994
    assert (centre, low, high) == pytest.approx((2.5, 2.5 - 2.054260, 2.5 + 2.054260), abs=1e-5)


def test_a_spoilt_reading_in_five_moves_the_interval_little() -> None:
    values = np.random.default_rng(0).normal(0.0, 0.01, 20)
    spoilt = values.copy()
    spoilt[:3] += 2.0
    centre, low, high = trimmed_interval(spoilt, 0.95)
    assert abs(centre - np.mean(values)) < 0.01 and high - low < 0.05


NOISES = ("normal", "wide", "autocorrelated", "heavy", "spikes", "drift", "two modes")


def _noise(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Log noise of readings in the order of time."""
    plain = rng.normal(0.0, 0.01, count)
    if kind == "wide":
        return 2.5 * plain
    if kind == "autocorrelated":
        for i in range(1, count):
            plain[i] += 0.9 * plain[i - 1]
    elif kind == "heavy":
        return 0.01 * rng.standard_t(2, count)
    elif kind == "spikes":
        plain += np.where(rng.random(count) < 0.1, np.log(rng.uniform(1.05, 2.0, count)), 0.0)
    elif kind == "drift":
        plain += np.linspace(0.0, 0.2, count)
    elif kind == "two modes":
        plain += np.where(rng.random(count) < 0.3, 0.05, 0.0)
    return plain


def _outcome(kind: str, gain: float, seed: int, challengers: int) -> str:
    """One sequential confirmation under a kind of noise; the first challenger has the gain."""
    rng = np.random.default_rng([seed, NOISES.index(kind)])
    names = [f"c{i}" for i in range(challengers)]
    arms = [INCUMBENT, TWIN, *names]
    rules = Rules()
    noise = _noise(kind, rng, rules.looks[-1] * len(arms)).reshape(-1, len(arms))
    readings: dict[str, list[float]] = {name: [] for name in arms}
    for block, row in enumerate(noise, start=1):
        for place, arm in enumerate(rng.permutation(len(arms)).tolist()):
            shift = math.log1p(-gain) if arms[arm] == "c0" else 0.0
            readings[arms[arm]].append(1e-4 * math.exp(row[place] + shift))
        if block in rules.looks:
            judged = judge(readings, rules, names)
            if may_stop(judged, block, rules):
                break
    verdict = overall(judged)
    assert verdict is not None
    return verdict.verdict


@pytest.mark.parametrize("kind", NOISES)
def test_same_against_same_is_called_better_in_at_most_one_of_twenty(kind: str) -> None:
    runs = 200
    for challengers in (1, 3):
        claims = sum(_outcome(kind, 0.0, seed, challengers) == "better" for seed in range(runs))
        assert claims <= 0.05 * runs


@pytest.mark.parametrize("kind", NOISES)
def test_a_true_gain_of_three_percent_is_found_in_nine_of_ten(kind: str) -> None:
    runs = 100
    found = sum(_outcome(kind, 0.03, seed, 1) == "better" for seed in range(runs))
    assert found >= 0.9 * runs


def test_one_block_proves_nothing() -> None:
    judged = judge({INCUMBENT: [1.0], TWIN: [1.0], "a": [0.1]}, Rules(), ["a"])
    assert judged[0].verdict == "undecided"
    assert not may_stop(judged, 1, Rules())


SAID = (
    *("task_id", "name", "arguments", "target", "incumbent", "incumbent_id"),
    *("incumbent_latency_s", "screened", "refined", "rejected", "dropped", "readings_s"),
    *("slowed_by", "reason", "seconds", "verdict", "ratio", "interval"),
)
JUDGED = (
    *("aa_interval", "confidence", "blocks", "winner_id", "winner_latency_s", "winner_from"),
    "challengers",
)


def test_a_verdict_is_typed_and_its_keys_are_those_of_the_file() -> None:
    rng = np.random.default_rng(0)
    levels = {INCUMBENT: 1e-4, TWIN: 1e-4, "a": 8e-5}
    readings = {
        name: [level * math.exp(noise) for noise in rng.normal(0.0, 0.002, 6)]
        for name, level in levels.items()
    }
    task = Task("t", "metaschedule", "main", [], "llvm", "llvm")
    result = Confirmation(readings, judge(readings, Rules(), ["a"]))
    before = Screening(0.0, "best recorded", "b", REFUSED, {}, [("b", 1e-4), ("c", None)], [])
    said = verdict_of(task, "llvm", before, result)
    assert said.verdict == said["verdict"] == "better" and said.winner_from == "refinement"
    assert tuple(said) == SAID + JUDGED
    (challenger,) = orjson.loads(orjson.dumps(said.to_json()))["challengers"]
    assert challenger["interval"] == list(said.challengers[0].interval)  # type: ignore[index]

    slow = verdict_of(task, "llvm", replace(before, screened=[("b", 1e-5)]), result)
    assert slow.verdict == "undecided" and slow.reason is not None
    assert tuple(slow) == SAID and slow["ratio"] is None
    with pytest.raises(LiveError, match="no challenger"):
        verdict_of(task, "llvm", before, Confirmation({INCUMBENT: [], TWIN: []}))
