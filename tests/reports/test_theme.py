"""Colours: contrast in both modes, distinct styles, and drawings in variables."""

from __future__ import annotations

import itertools

import pytest

from toolkit.reports.page import theme

TEXT_ROLES = ("ink", "muted", "accent", "good", "bad", "open")
MODES = {"light": 0, "dark": 1}
SURFACES = ("page", "card")
MARKS = ("axis", "accent", "good", "bad", "open", "baseline", *theme.SERIES)


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.1, "relative luminance")."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("role", TEXT_ROLES)
def test_text_can_be_read(mode: str, role: str) -> None:
    for surface in SURFACES:
        pair = theme.ROLES[role][MODES[mode]], theme.ROLES[surface][MODES[mode]]
        assert contrast(*pair) >= 4.5, (role, surface)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("role", [mark for mark in MARKS if mark != "axis"])
def test_marks_can_be_seen(mode: str, role: str) -> None:
    for surface in SURFACES:
        pair = theme.ROLES[role][MODES[mode]], theme.ROLES[surface][MODES[mode]]
        assert contrast(*pair) >= 3.0, (role, surface)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_many_strategies_stay_apart() -> None:
    labels = [f"strategy {i}" for i in range(25)]
    found = theme.styles(labels, baseline="strategy 3")
    assert len({style.role for style in found.values()}) == len(labels)
    seen = {(theme.ROLES[style.role][0][:5], style.dash) for style in found.values()}
    assert len(seen) == len(labels)
    assert found["strategy 3"].role == "baseline"
    assert theme.styles(labels, None)["strategy 0"] == found["strategy 0"]


def test_light_values_are_distinct_so_that_they_name_a_role() -> None:
    light = [pair[0] for pair in theme.ROLES.values()]
    assert all(a != b for a, b in itertools.combinations(light, 2))


def test_drawings_get_variables() -> None:
    drawn = f'<path fill="{theme.light("s1")}" stroke="#123456"/><text fill="#FFFFFE">'
    assert theme.with_variables(drawn) == (
        f'<path fill="var(--s1, {theme.light("s1")})" stroke="#123456"/>'
        '<text fill="var(--card, #FFFFFE)">'
    )
