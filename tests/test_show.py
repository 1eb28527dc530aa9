"""Numbers for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit import show


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (5, "5"), (12345, "12,345"), (0.97, "0.970"), (76.5, "76.5"), (1234.5, "1,234")],
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert show.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5e-5, "15 µs"), (2e-3, "2 ms"), (0.5, "500 ms"), (90, "90 s"), (600, "10 min"),
     (7200, "2 h"), (3e-9, "3 ns"), (0, "0 s")],
)  # fmt: skip
def test_seconds_choose_their_unit(value: float, text: str) -> None:
    assert show.seconds(value).replace(show.THIN, " ") == text


@given(st.floats(0, 1))
def test_a_share_is_all_or_nothing_only_when_it_is(share: float) -> None:
    """But for what sums of shares are off by."""
    text = show.percent(share)
    assert (text == f"100{show.THIN}%") == (round(share, 12) == 1)
    assert (text == f"0{show.THIN}%") == (round(share, 12) == 0)


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (4 / 1000, 0, "0.4 %"),
        (0.0025, 0, "0.2 %"),
        (0.996, 0, "99.6 %"),
        (0.9999, 0, ">99.9 %"),
        (sum([1 / 12] * 12), 1, "100 %"),
        (0.0004, 0, "<0.1 %"),
        (0.123, 0, "12 %"),
    ],
)
def test_a_digit_more_is_shown_beside_all_and_nothing(share: float, digits: int, text: str) -> None:
    assert show.percent(share, digits).replace(show.THIN, " ") == text


def test_a_small_loss_is_no_zero() -> None:
    assert show.percent(-0.0001) == f">{show.MINUS}0.1{show.THIN}%"
    assert show.percent(-0.05) == f"{show.MINUS}5.0{show.THIN}%"
    assert show.gain(-0.0001) == f"0.0{show.THIN}%"
    assert show.gain(-0.123) == f"{show.MINUS}12.3{show.THIN}%"
    assert show.number(-0.0837) == f"{show.MINUS}0.0837"
    assert show.number(-2) == f"{show.MINUS}2"


@given(st.one_of(st.none(), st.sampled_from([math.inf, math.nan])))
def test_what_is_not_there_is_said_so(value: float | None) -> None:
    assert show.number(value) == show.seconds(value) == show.percent(value) == "–"
    assert show.number(value, "not reached") == "not reached"


def test_intervals_without_an_end_say_so() -> None:
    assert show.interval([244.0, None]) == f"[244,{show.FIXED}∞]"
    assert show.interval([None, None]) == show.interval(None) == ""
    assert (
        show.interval([0.1, 0.25], "percent") == f"[10.0{show.THIN}%,{show.FIXED}25.0{show.THIN}%]"
    )


def test_words() -> None:
    assert show.listed(["a", "b", "c"]) == "a, b and c"
    assert show.listed(["a"]) == "a"
    assert show.plural(1, "task") == "1 task"
    assert show.plural(2000, "task was", "tasks were") == "2,000 tasks were"


def test_of_a_path_that_is_cut_the_end_is_kept() -> None:
    assert show.cut_front("logs/fast/a.log", 15) == "logs/fast/a.log"
    assert show.cut_front("logs/fast/a.log", 6) == "…a.log"
    assert show.cut("logs/fast/a.log", 6) == "logs/…"
