"""Avoiding: failures and slow builds are recognised, looked at again, and never a dead end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from toolkit.live.tune.avoid import LOOK_AGAIN, AvoidingOracle
from toolkit.records import Candidate, Trial, TrialState, content_id


class Line:
    """Candidates with one feature, and one that is missing throughout.

    The last fifth of the line fails, the fifth before is slow.
    """

    def __init__(self, count: int) -> None:
        names = [content_id("line", str(i)) for i in range(count)]
        self.all = [Candidate(name, "s", (i,)) for i, name in enumerate(names)]

    def features(self, candidates: Sequence[Candidate]) -> np.ndarray:
        rows = [[np.nan, c.decisions[0], 1.0] for c in candidates]
        return np.array(rows, dtype=np.float32)


class Measured:
    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[int] = []

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        trials = []
        for candidate in candidates:
            place = candidate.decisions[0] / self.count
            self.asked.append(candidate.decisions[0])
            state = TrialState.COMPILE if place >= 0.8 else TrialState.OK
            elapsed = 12.0 if 0.6 <= place < 0.8 else 0.1
            times = (1e-3,) if state is TrialState.OK else ()
            trials.append(Trial(candidate, state, times, elapsed, 0.0))
        return trials


@cache
def _run(count: int = 2000) -> tuple[Line, Measured, AvoidingOracle]:
    line, oracle = Line(count), Measured(count)
    avoiding = AvoidingOracle(oracle, line)
    order = np.random.default_rng(0).permutation(count).tolist()
    for begin in range(0, count, 16):
        avoiding.measure([line.all[i] for i in order[begin : begin + 16]])
    return line, oracle, avoiding


def test_failures_and_slow_builds_are_left_out_and_good_ones_are_not() -> None:
    _, oracle, avoiding = _run()
    places = np.array(oracle.asked) / oracle.count
    late = places[200:]
    assert (late >= 0.62).mean() < 0.15, "without it, 0.38 of them would be"
    assert avoiding.avoided + len(oracle.asked) == oracle.count
    good = (places < 0.58).sum() / (0.58 * oracle.count)
    assert good > 0.98


def test_a_share_of_what_is_avoided_is_looked_at_again() -> None:
    _, oracle, avoiding = _run()
    bad = np.sum(np.array(oracle.asked[200:]) / oracle.count >= 0.62)
    assert 0.3 * LOOK_AGAIN < bad / (bad + avoiding.avoided) < 3 * LOOK_AGAIN


def test_a_batch_of_nothing_else_still_measures_one() -> None:
    line, oracle, avoiding = _run(800)
    before = len(oracle.asked)
    trials = avoiding.measure(line.all[-8:])
    assert 1 <= len(trials) == len(oracle.asked) - before < 8
    assert avoiding.measure([]) == []


def test_without_failures_nothing_is_avoided() -> None:
    line, oracle = Line(500), Measured(10**9)
    avoiding = AvoidingOracle(oracle, line)
    for begin in range(0, 500, 20):
        avoiding.measure(line.all[begin : begin + 20])
    assert avoiding.avoided == 0 and len(oracle.asked) == 500


class Refusing(Measured):
    """TVM refuses what is not among these numbers."""

    def __init__(self, count: int, fine: set[int]) -> None:
        super().__init__(count)
        self.fine = fine

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        return [
            trial
            if trial.candidate.decisions[0] in self.fine
            else Trial(trial.candidate, TrialState.INSTANTIATION, (), 0.0, 0.0)
            for trial in super().measure(candidates)
        ]


def test_what_is_refused_is_no_trial_unless_all_is() -> None:
    line = Line(100)
    avoiding = AvoidingOracle(Refusing(100, {3, 7}), line)
    answered = avoiding.measure(line.all[:10])
    assert [trial.candidate.decisions[0] for trial in answered] == [3, 7]
    assert len(avoiding.measure(line.all[20:30])) == 1
