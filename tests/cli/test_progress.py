"""Where standard error is no terminal, long steps say now and then how far they are."""

from __future__ import annotations

import pytest

from toolkit.cli import common


def test_lines_come_now_and_then_with_an_estimate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    with common.BarProgress().step("training", 13) as step:
        for fold in range(13):
            now[0] += 12
            step.advance(note=f"fold-{fold}" + ", of many words" * (fold == 5) * 9)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "training ..."
    assert len(said) == 1 + 4  # of 156 seconds, a line after every 36
    text = said[1].replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert text == "training: 3 of 13, 36 s so far, about 2 min left, fold-2"
    assert len(said[2]) > 150  # However long, it is one line to whatever reads it.


def test_a_short_step_says_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with common.BarProgress().step("features") as step:
        step.advance()
    assert capsys.readouterr().err.splitlines() == ["features ..."]
