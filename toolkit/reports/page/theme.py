"""Colours and type of the report: one palette, a light and a dark value for each role.

Figures are drawn with the light values. In the page every colour becomes a CSS variable, so that
one drawing serves light, dark and print; exported files keep the light values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.toml_file import read_toml

THEME = read_toml(Path(__file__).with_suffix(".toml"))
ROLES: dict[str, tuple[str, str]] = {role: tuple(pair) for role, pair in THEME["roles"].items()}

# Beyond ten, colours repeat with other dashes. Each still has its own role, so that the page can
# fade one without the other: its blue differs by an invisible step.
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


def altair_config(font_size: int) -> dict[str, Any]:
    """Vega-Lite configuration shared by all figures."""
    labels = {"labelFont": FONT, "labelFontSize": font_size, "titleFontSize": font_size}
    sizes: dict[str, dict[str, Any]] = {
        "axis": {**labels, "titleFont": FONT},
        # A browser's font may be wider than the one measured here: labels are a letter apart.
        "axisX": {"labelOverlap": "greedy", "labelSeparation": font_size},
        "legend": labels,
        "text": {"font": FONT, "fontSize": font_size},
        "title": {"font": FONT, "fontSize": font_size + 2},
    }
    found: dict[str, Any] = {"font": FONT, "view": {"stroke": None}, **THEME["config"]}
    found["axisX"] = sizes["axisX"]
    for part, options in THEME["config"].items():
        if isinstance(options, dict):
            roles = {key: light(role) for key, role in options.items() if str(role) in ROLES}
            found[part] = {**options, **roles, **sizes.get(part, {})}
    return found
