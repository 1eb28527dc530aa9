"""Programs that are slower in the blocks than when they were read before."""

from __future__ import annotations

import pytest

from toolkit.live.confirm.rules import INCUMBENT
from toolkit.live.measure.slowed import SLOWED, slowed_by, slowed_warnings
from toolkit.live.race.confirm import _read_s
from toolkit.live.race.leg import STOCK
from toolkit.live.race.steps import Held


def test_the_factor_is_the_middle_programs() -> None:
    read = {"a": 1.0, "b": 2.0, "lucky": 1.0, "never read again": 1.0}
    again = {"a": [1.1, 1.1], "b": [2.2, 2.2], "lucky": [4.0, 4.0], "never read before": [9.0]}
    assert slowed_by(read, again) == pytest.approx(1.1)


def test_one_lucky_reading_of_two_says_nothing_of_the_machine() -> None:
    assert slowed_by({"a": 1.0, "lucky": 1.0}, {"a": [1.0], "lucky": [9.0]}) == pytest.approx(1.0)


def test_without_a_program_that_was_read_twice_there_is_no_factor() -> None:
    assert slowed_by({"a": 1.0}, {"b": [1.0], "a": []}) is None
    assert slowed_warnings("t", None, "again") == []


def test_only_what_luck_does_not_explain_is_told_with_its_cure() -> None:
    assert slowed_warnings("t", SLOWED, "again") == slowed_warnings("t", 0.5, "again") == []
    (warning,) = slowed_warnings("matmul", 1.16, "validate again")
    assert warning.startswith("matmul: programs take 16% longer")
    assert warning.endswith(": validate again")


def test_a_race_knows_each_programs_own_reading() -> None:
    def leg(best_s: float, *latencies: float | None) -> dict:
        return {"trials": [{"latency_s": value, "best_s": best_s} for value in latencies]}

    legs = {STOCK: leg(2.0, 3.0, None, 2.0, 2.5), "ours": leg(1.5, None, 4.0, 1.5)}
    steps = {STOCK: [Held(1, 1, 1.0), Held(3, 3, 1.0)], "ours": [Held(2, 2, 1.0), Held(3, 3, 1.0)]}
    # Stock's final program is the incumbent, and not one of its steps besides.
    assert _read_s(legs, steps, 2.0) == {
        INCUMBENT: 2.0,
        f"{STOCK}, trial 1": 3.0,
        "ours, trial 2": 4.0,
        "ours, trial 3": 1.5,
    }
    assert _read_s(legs, {}, None) == {}
