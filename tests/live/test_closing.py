"""What follows a search keeps to its seconds; one of several tasks ends when it has settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.conftest import PROTOCOL
from toolkit.live.tune.closing import within
from toolkit.live.tune.settings import TuneSettings, for_network, search_seconds, settled
from toolkit.live.tune.tune import tune
from toolkit.networks.tasks import tasks_of
from toolkit.records import Trial
from toolkit.search.network import NetworkRun
from toolkit.search.runner import WallClock
from toolkit.search.schedulers.base import TaskProgress
from toolkit.training.trained.models import TrainedModels


@dataclass
class Watch:
    """A clock that is set by hand."""

    at: float = 0.0

    def now(self) -> float:
        return self.at


class Late(WallClock):
    """A clock on which it is late as soon as something was measured."""

    def charge(self, trials: Sequence[Trial]) -> list[float]:
        found = super().charge(trials)
        self.resume(self.now() + 1000)
        return found


def test_things_are_given_while_there_is_time_for_the_longest() -> None:
    watch, given = Watch(), []
    for thing, takes in zip(within("abcd", 10.0, watch), (2.0, 5.0, 1.0), strict=False):  # type: ignore[arg-type]
        given.append(thing)
        watch.at += takes
    assert given == ["a", "b"]  # another five seconds would end at twelve
    watch.at = 99.0
    assert list(within("ab", 10.0, watch)) == ["a"]  # type: ignore[arg-type]
    assert list(within("ab", None, watch)) == ["a", "b"]  # type: ignore[arg-type]


def test_a_search_leaves_time_for_what_follows() -> None:
    assert search_seconds(TuneSettings(), 3) is None
    assert search_seconds(TuneSettings(seconds=400.0, finalists=0), 10) == 393.0
    assert search_seconds(TuneSettings(seconds=400.0, finalists=12), 1) == 391.3
    assert search_seconds(TuneSettings(seconds=400.0, finalists=12), 200) == 300.0
    assert search_seconds(TuneSettings(seconds=9.0, finalists=0, check=False), 5) == 9.0
    # A network of many functions: the first look at each comes before checks of outputs.
    assert search_seconds(TuneSettings(seconds=400.0, finalists=0), 200) == 360.0


def run_of(objective: list[float], every_s: float, rounds: int = 2) -> NetworkRun:
    run = NetworkRun(tasks=[TaskProgress(best_s=[1.0] * rounds)])
    run.objective_s = objective
    run.clock_s = [every_s * (place + 1) for place in range(len(objective))]
    return run


def test_a_search_has_settled_when_little_was_gained() -> None:
    flat = [2.0, 1.5, 1.2] + [1.0] * 20
    assert settled(run_of(flat, 10.0))
    assert not settled(run_of(flat, 1.0))  # the first seconds say nothing
    assert not settled(run_of(flat, 10.0, rounds=1))  # a task had its first look only
    falling = [2.0 * 0.99**place for place in range(23)]
    assert not settled(run_of(falling, 10.0))


def test_a_networks_turns_are_small_and_its_first_look_is_quick() -> None:
    made = for_network(TuneSettings(strategy="transfer-evolved"), stop=True)
    assert (made.first_round, made.round_size, made.stop_when_settled) == (2, 8, True)
    assert made.options == {"first": 1} and made.finalists == 0
    assert for_network(TuneSettings(strategy="random"), stop=False).options == {}


@pytest.mark.live
def test_what_time_did_not_reach_is_said(target: str, tmp_path: Path) -> None:
    tasks = tasks_of(["matmul:8,12,16", "matmul:8,8,8", "matmul:16,8,8"], target)
    settings = TuneSettings(trials=12, seconds=300, strategy="random", first_round=4, finalists=2)
    given = {"target": target, "protocol": PROTOCOL, "settings": settings}
    result = tune(tasks, tmp_path, **given, guides=TrainedModels(), clock=Late())
    assert 0 < result["trials"] <= 12
    # The heaviest task is looked after all the same.
    assert sum(row["unchecked"] is None for row in result["tasks"]) >= 1
    assert {row["unchecked"] for row in result["tasks"]} <= {None, "no time was left"}
    assert any(
        "no time was left to read the best programs" in warning for warning in result["warnings"]
    )
