"""Colours and type of the report: one palette, a light and a dark value for each role.

Figures are drawn with the light values. In the page every colour becomes a CSS variable, so that
one drawing serves light, dark and print; exported files keep the light values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Role: (light, dark). Roles that carry meaning have a contrast of at least 3:1 against every
# surface of their mode, and text roles 4.5:1 (WCAG 2.1, 1.4.3 and 1.4.11); a test computes it.
ROLES: dict[str, tuple[str, str]] = {
    "page": ("#f6f7f9", "#12151a"),
    "card": ("#fffffe", "#1a1e25"),
    "ink": ("#1a2027", "#e8ebef"),
    "muted": ("#566170", "#a3aebb"),
    "axis": ("#8a94a1", "#717c8a"),
    "grid": ("#e4e8ed", "#2b313b"),
    "accent": ("#0a5fb4", "#6cb2f7"),
    "good": ("#0b7a4b", "#4cc38a"),
    "bad": ("#b3261e", "#f58a80"),
    "open": ("#8a5a00", "#e0ac4a"),
    "baseline": ("#5d6875", "#98a4b3"),
    "s1": ("#0b62b8", "#5aa9f5"),
    "s2": ("#c2410d", "#f98f5b"),
    "s3": ("#0a7d58", "#45c597"),
    "s4": ("#93379b", "#d98ee0"),
    "s5": ("#86650b", "#d9b544"),
    "s6": ("#0b7687", "#4fc0d4"),
    "s7": ("#b81f45", "#fb7f9b"),
    "s8": ("#5146bd", "#a59cf8"),
    "s9": ("#54731a", "#a3c65a"),
    "s10": ("#7d4a36", "#cf9c84"),
}

# Beyond ten, colours come again with other dashes. Each has a role of its own all the same, so
# that the page can fade one without the other: its blue differs by a step that no eye sees.
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (7, 3), (2, 3))
HUES = 10


def _stepped(colour: str, step: int) -> str:
    blue = int(colour[5:], 16)
    return f"{colour[:5]}{blue + step if blue + step < 256 else blue - step:02x}"


for _cycle in range(1, len(DASHES)):
    for _hue in range(1, HUES + 1):
        _pair = ROLES[f"s{_hue}"]
        ROLES[f"s{_hue + _cycle * HUES}"] = (_stepped(_pair[0], _cycle), _stepped(_pair[1], _cycle))

SERIES = [name for name in ROLES if re.fullmatch(r"s\d+", name)]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Style:
    """How one strategy is drawn, everywhere in the report."""

    role: str
    dash: tuple[int, ...]

    @property
    def colour(self) -> str:
        """The light value, which figures are drawn with."""
        return ROLES[self.role][0]


def light(role: str) -> str:
    """Light value of a role."""
    return ROLES[role][0]


def styles(labels: list[str], baseline: str | None) -> dict[str, Style]:
    """Give every label a colour and a dash, in the order given; the baseline is grey."""
    others = [label for label in labels if label != baseline]
    found = {
        label: Style(SERIES[i % len(SERIES)], DASHES[i // HUES % len(DASHES)])
        for i, label in enumerate(others)
    }
    return {label: found.get(label, Style("baseline", (4, 3))) for label in labels}


def css_variables(dark: bool) -> str:
    """Declare every role as a CSS variable for one mode."""
    return " ".join(f"--{role}: {pair[dark]};" for role, pair in ROLES.items())


_BY_COLOUR = {pair[0]: role for role, pair in ROLES.items()}
_PAINT = re.compile(r'(fill|stroke)="(#[0-9a-fA-F]{6})"')


def with_variables(svg: str) -> str:
    """Replace the palette's light colours in a drawing by CSS variables."""

    def variable(match: re.Match[str]) -> str:
        role = _BY_COLOUR.get(match[2].lower())
        return match[0] if role is None else f'{match[1]}="var(--{role}, {match[2]})"'

    return _PAINT.sub(variable, svg)


def altair_config(font_size: int) -> dict[str, object]:
    """Vega-Lite configuration shared by all figures."""
    labels = {"labelFont": FONT, "labelFontSize": font_size}
    titles = {
        "titleFontSize": font_size,
        "titleFontWeight": "normal",
        "titleColor": light("muted"),
    }
    return {
        "font": FONT,
        "background": "transparent",
        "padding": 4,
        "view": {"stroke": None},
        "axis": {
            **labels,
            **titles,
            "labelColor": light("muted"),
            "titleFont": FONT,
            "titlePadding": 8,
            "gridColor": light("grid"),
            "domainColor": light("axis"),
            "tickColor": light("axis"),
            "tickSize": 4,
            "labelPadding": 4,
        },
        "axisX": {"titleAnchor": "end"},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            **labels,
            **titles,
            "labelColor": light("ink"),
            "symbolStrokeWidth": 2.5,
            "symbolSize": 140,
            "orient": "bottom",
            "columns": 4,
            "columnPadding": 26,
            "labelLimit": 220,
        },
        "text": {"font": FONT, "fontSize": font_size, "color": light("ink")},
        "title": {
            "font": FONT,
            "fontSize": font_size + 2,
            "fontWeight": 600,
            "color": light("ink"),
            "anchor": "start",
        },
        "line": {"strokeWidth": 2, "strokeCap": "round"},
    }
