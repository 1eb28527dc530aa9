"""Common parts of all figures: layouts, axes, names of tasks, and marks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.theme import Style, light
from toolkit.toml_file import read_toml

Shorten = Callable[[str, int], str]

CAPTIONS = read_toml(Path(__file__).parent / "captions.toml")

WIDE_LETTER = 0.63
"""Mean width of a letter over the font size, in the widest fonts that a system may use."""

# How a tick's value is written (Vega expressions).
COUNT = "format(datum.value, ',')"
TIMES = "format(datum.value, ',') + '×'"
CLOCK = (
    "datum.value >= 3600 ? format(datum.value / 3600, ',') + ' h' : "
    "datum.value >= 60 ? format(datum.value / 60, ',') + ' min' : "
    "datum.value >= 1 ? format(datum.value, ',') + ' s' : "
    "datum.value >= 1e-3 ? format(datum.value * 1e3, '~r') + ' ms' : "
    "format(datum.value * 1e6, '~r') + ' µs'"
)
# Seconds at which an axis of time has ticks.
CLOCK_TICKS = [10.0**power for power in range(-9, 1)] + [10, 60, 600, 3600, 36000, 360000, 3.6e6]


@dataclass(frozen=True, slots=True)
class Layout:
    """Size of a figure."""

    name: str
    width: int  # pixels in all, axes included
    rows: int  # how many tasks or features are listed at most
    label_chars: int  # longer names are cut
    font_size: int = 12
    legend: bool = False  # whether it names strategies (the page names them once, above)


WIDE = Layout("wide", 540, 24, 34)
NARROW = Layout("narrow", 340, 14, 21, 11)
EXPORT = Layout("export", 760, 32, 44, 13, legend=True)


@dataclass(frozen=True)
class Figure:
    """One figure: what is drawn and what is said about it."""

    key: str  # stable name, also of the exported files
    title: str
    reading: str  # how to read it
    limits: str  # what it does not show
    description: str  # what the figure shows, for screen readers
    draw: Callable[[Layout], Any]  # makes the chart for a layout

    def of(self, part: str) -> Figure:
        """Return the figure with the name of one model or replay before its key."""
        return replace(self, key=f"{part}-{self.key}")


def figure(caption: str, draw: Callable[[Layout], Any], **values: Any) -> Figure:
    """Return a figure with its texts from ``captions.toml``, with the values filled in."""
    texts = {"key": caption, **CAPTIONS[caption]}
    words = {name: " ".join(text.split()).format(**values) for name, text in texts.items()}
    return Figure(**words, draw=draw)


def chart(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Chart of inline data."""
    return alt.Chart(alt.Data(values=list(rows)))


def log_axis(low: float, high: float, title: str, label: str = COUNT) -> dict[str, Any]:
    """Logarithmic scale that ends where the data do, and its axis with readable ticks."""
    ticks = [value for value in CLOCK_TICKS if low * 0.999 <= value <= high * 1.001]
    if label != CLOCK or len(ticks) < 2:
        ticks = _log_ticks(low, high)
    return {
        "scale": alt.Scale(type="log", domain=[low, high], nice=False, clamp=True),
        "axis": alt.Axis(title=title, values=ticks, labelExpr=label, grid=True),
    }


def _log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 in each decade, fewer where there are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1, 3) if last - first <= 4 else (1,)
    values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]


def share_axis(title: str, low: float = 0.0) -> dict[str, Any]:
    """Scale of a share up to 100 %, and its axis."""
    return {
        "scale": alt.Scale(domain=[low, 1.0], nice=False),
        "axis": alt.Axis(format="%", title=title, tickCount=6),
    }


def tenth_below(values: Iterable[float]) -> float:
    """Where an axis of shares may begin: the tenth below the least of them."""
    return max(0.0, int(min(values, default=0.0) * 10) / 10)


def names(labels: Sequence[str], layout: Layout) -> Any:
    """Vertical axis of the field ``name``; keeps the room that the names need in any font."""
    longest = max((len(label) for label in labels), default=0)
    axis = alt.Axis(
        title=None,
        labelLimit=1000,
        minExtent=math.ceil(longest * layout.font_size * WIDE_LETTER),
        labelColor=light("ink"),
        grid=False,
    )
    return alt.Y("name:N", sort=list(labels), axis=axis)


def legend(**options: Any) -> Any:
    """Legend above a figure."""
    return alt.Legend(title=None, orient="top", **options)


def wide_legend(layout: Layout) -> Any:
    """Legend above a figure, in as many columns as fit."""
    return legend(columns=3 if layout.width > 400 else 2, symbolOpacity=1)


def series(channel: Any, values: Mapping[str, Any], legend: Any = None) -> Any:
    """Channel (``alt.Color``, ``alt.Shape``, ...) that encodes the field ``series``."""
    scale = alt.Scale(domain=list(values), range=list(values.values()))
    return channel("series:N", scale=scale, legend=legend)


def told_apart(looks: Mapping[str, tuple[str, str]], legend: Any) -> dict[str, Any]:
    """Colour and shape of the field ``series``; ``looks`` are the names of a role and a shape."""
    palette = {name: light(role) for name, (role, _) in looks.items()}
    shapes = {name: shape for name, (_, shape) in looks.items()}
    return {"color": series(alt.Color, palette, legend), "shape": series(alt.Shape, shapes, legend)}


def colours(styles: Mapping[str, Style], legend: Any = None) -> Any:
    """Colour of the field ``series``."""
    return series(alt.Color, {name: style.colour for name, style in styles.items()}, legend)


def curves(
    rows: Sequence[Mapping[str, Any]],
    styles: Mapping[str, Style],
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    legend: Any,
    *,
    dashed: bool = True,
) -> Any:
    """Steps of ``value`` against ``x``, one line per series; band from ``low`` to ``high``."""
    shape = {"clip": True, "interpolate": "step-after"}
    base = chart(rows).encode(x=alt.X("x:Q", **x), color=colours(styles, legend))
    line = base.mark_line(**shape).encode(y=alt.Y("value:Q", **y))
    if dashed:
        dashes = {name: list(style.dash) for name, style in styles.items()}
        line = line.encode(strokeDash=series(alt.StrokeDash, dashes, legend))
    if "low" in rows[0]:
        band = base.mark_area(opacity=0.13, **shape).encode(y=alt.Y("low:Q", **y), y2="high:Q")
        line = band + line
    return line.properties(height=300)


def bar_of_interval(base: Any, opacity: float = 0.45, **channels: Any) -> Any:
    """Thick line from one bound to the other."""
    mark = base.mark_rule(strokeWidth=3, opacity=opacity, strokeCap="round")
    return mark.encode(**channels)


def points(base: Any, size: float = 90, opacity: float = 1, **channels: Any) -> Any:
    """Filled points."""
    return base.mark_point(filled=True, size=size, opacity=opacity).encode(**channels)


def numbers(base: Any, layout: Layout, text: Any = "text:N", **options: Any) -> Any:
    """Numbers at the right edge of the figure."""
    mark = base.mark_text(align="right", fontSize=layout.font_size - 1, **options)
    return mark.encode(x=alt.value("width"), text=text)


def upright(at: float, opacity: float, **x: Any) -> Any:
    """Dashed vertical line at a value."""
    mark = chart([{"at": at}]).mark_rule(color=light("ink"), strokeDash=[3, 3], opacity=opacity)
    return mark.encode(x=alt.X("at:Q", **x))


def diagonal(low: float, x: Mapping[str, Any], y: Mapping[str, Any]) -> Any:
    """Dashed line from ``low`` to 1 on which both axes agree."""
    mark = chart([{"at": low}, {"at": 1.0}]).mark_line(
        color=light("ink"), strokeDash=[4, 4], strokeWidth=1.2, opacity=0.8
    )
    return mark.encode(x=alt.X("at:Q", **x), y=alt.Y("at:Q", **y))


def short_name(name: str, chars: int) -> str:
    """Cut a long name in its middle: names differ at both ends."""
    if len(name) <= chars:
        return name
    head = (chars - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (chars - 1 - head) :]}"


def labels_of(
    rows: Iterable[Mapping[str, Any]], layout: Layout, shorten: Shorten = show.task_label
) -> list[str]:
    """Distinct short labels of rows by their ``name``; repeated ones are numbered."""
    seen: Counter[str] = Counter()
    labels = []
    for row in rows:
        label = shorten(row["name"], layout.label_chars)
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return labels


def named(
    rows: Sequence[Mapping[str, Any]], layout: Layout, shorten: Shorten = show.task_label
) -> Any:
    """Chart of rows, one above the other in their order, by their ``name`` in short."""
    labels = labels_of(rows, layout, shorten)
    drawn = [{**row, "name": label} for label, row in zip(labels, rows, strict=True)]
    return chart(drawn).encode(y=names(labels, layout))
