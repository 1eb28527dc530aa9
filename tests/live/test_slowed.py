"""Programs that are slower in the blocks than when they were read before."""

from __future__ import annotations

import pytest

from toolkit.live.measure.slowed import SLOWED, slowed_by, slowed_warnings


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
