"""What all figures share: sizes, scales that read well, and how a drawing becomes SVG or PNG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt
import vl_convert

from toolkit import show
from toolkit.reports.page.theme import altair_config, light, with_variables

PNG_SCALE = 2.0
WIDE_LETTER = 0.63
"""Mean width of a letter over the font size, in the widest fonts that a system may use."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Room that a figure has.

    Attributes
    ----------
    width
        Pixels in all, axes included.
    rows
        How many tasks or features are listed at most.
    label_chars
        Longer names are cut.
    legend
        Whether strategies are named in the figure (the page names them once, above).
    """

    name: str
    width: int
    rows: int
    label_chars: int
    font_size: int = 12
    legend: bool = False

    @property
    def columns(self) -> int:
        """Columns of a legend that stands above a figure."""
        return 3 if self.width > 400 else 2


WIDE = Layout("wide", 540, 24, 34)
NARROW = Layout("narrow", 340, 14, 21, 11)
EXPORT = Layout("export", 760, 32, 44, 13, legend=True)


@dataclass(frozen=True)
class Figure:
    """One figure: what is drawn and what is said about it.

    Attributes
    ----------
    key
        Stable name, also of the exported files.
    reading, limits
        How to read it, and what it does not show.
    description
        What is seen, for those who do not see it.
    draw
        Makes the chart for a layout.
    """

    key: str
    title: str
    reading: str
    limits: str
    description: str
    draw: Callable[[Layout], Any]


def data(rows: Iterable[dict[str, Any]]) -> Any:
    """Inline data of a chart."""
    return alt.Data(values=list(rows))


def log_ticks(low: float, high: float) -> list[float]:
    """Tick values of a logarithmic axis: 1, 2, 5 in each decade, fewer where there are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1, 3) if last - first <= 4 else (1,)
    values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]


def log_axis(low: float, high: float, title: str, label: str = "format(datum.value, '~s')") -> Any:
    """Horizontal logarithmic axis with readable ticks; ``label`` is a Vega expression."""
    return alt.Axis(title=title, values=log_ticks(low, high), labelExpr=label, grid=True)


def log_scale(low: float, high: float) -> Any:
    """Logarithmic scale that ends where the data do."""
    return alt.Scale(type="log", domain=[low, high], nice=False, clamp=True)


# Seconds at which a clock's reader expects a tick.
_CLOCK = [10.0**power for power in range(-9, 1)] + [10, 60, 600, 3600, 36000, 360000, 3.6e6]
_CLOCK_LABEL = (
    "datum.value >= 3600 ? format(datum.value / 3600, ',') + ' h' : "
    "datum.value >= 60 ? format(datum.value / 60, ',') + ' min' : "
    "datum.value >= 1 ? format(datum.value, ',') + ' s' : "
    "datum.value >= 1e-3 ? format(datum.value * 1e3, '~r') + ' ms' : "
    "format(datum.value * 1e6, '~r') + ' µs'"
)


def clock_axis(low: float, high: float, title: str) -> Any:
    """Horizontal logarithmic axis of seconds: 1 s, 10 s, 1 min, 10 min, 1 h."""
    values = [value for value in _CLOCK if low * 0.999 <= value <= high * 1.001]
    if len(values) < 2:
        values = log_ticks(low, high)
    return alt.Axis(title=title, values=values, labelExpr=_CLOCK_LABEL, grid=True)


def task_label(name: str, chars: int) -> str:
    """Short label of a task: its workload and the numbers that tell it apart.

    Words among the arguments (layouts, data types), a template's suffix and a batch of one are
    left out; of what is too long the workload is cut first, then the end.
    """
    workload, _, rest = name.partition("(")
    if ":" in workload:
        # Names given by 'toolkit collect' hold all numbers that matter.
        text = workload.replace(":", " ", 1)
        return show.cut(text, chars)
    arguments = [part for part in rest.rstrip(")").split(",") if part[:1].isdigit()]
    shapes = [part.removeprefix("1x") for part in arguments if "x" in part] or arguments
    workload = workload.removesuffix(".x86").removesuffix(".cuda")
    text = " ".join([workload, *shapes])
    if len(text) > chars and shapes:
        text = " ".join([workload[: max(6, chars // 3)].rstrip("_"), *shapes])
    return show.cut(text, chars)


def short(name: str, chars: int) -> str:
    """Cut a long name in its middle: both ends tell tasks apart."""
    if len(name) <= chars:
        return name
    head = (chars - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (chars - 1 - head) :]}"


def unique_labels(labels: Sequence[str]) -> list[str]:
    """Labels that are distinct: doubles are numbered."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found


def names_axis(labels: Sequence[str], layout: Layout) -> Any:
    """Vertical axis of names; keeps the room that they need in whatever font the page is shown."""
    longest = max((len(label) for label in labels), default=0)
    return alt.Axis(
        title=None,
        labelLimit=1000,
        minExtent=math.ceil(longest * layout.font_size * WIDE_LETTER),
        labelColor=light("ink"),
        grid=False,
    )


def task_labels(names: Sequence[str], chars: int) -> list[str]:
    """Distinct short labels of tasks."""
    return unique_labels([task_label(name, chars) for name in names])


def specification(figure: Figure, layout: Layout) -> dict[str, Any]:
    """Vega-Lite specification of a figure."""
    chart = figure.draw(layout).properties(
        width=layout.width,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    if layout.legend:
        chart = chart.properties(title=figure.title, background="#ffffff")
    found: dict[str, Any] = chart.to_dict()
    found["config"] = {**altair_config(layout.font_size), "aria": False}
    return found


def _grammar() -> str:
    """Version of Vega-Lite that altair writes, as vl-convert names it (``6.4``)."""
    return ".".join(str(alt.SCHEMA_VERSION).lstrip("v").split(".")[:2])


def draw_svg(figure: Figure, layout: Layout = EXPORT) -> str:
    """Draw a figure as a standalone SVG document, in light colours."""
    svg: str = vl_convert.vegalite_to_svg(specification(figure, layout), vl_version=_grammar())
    return svg


def draw_png(figure: Figure, layout: Layout = EXPORT) -> bytes:
    """Draw a figure as PNG at twice its size, on white."""
    png: bytes = vl_convert.vegalite_to_png(
        specification(figure, layout), vl_version=_grammar(), scale=PNG_SCALE
    )
    return png


def inline_svg(figure: Figure, layout: Layout) -> str:
    """Draw a figure for the page: in CSS variables, scaling, with a name of its own for all ids."""
    svg = with_variables(draw_svg(figure, layout))
    # The engine numbers clips over its whole life: equal figures would differ.
    for number, name in enumerate(dict.fromkeys(re.findall(r'id="((?:clip|gradient)[^"]*)"', svg))):
        own = f"{figure.key}-{layout.name}-{number}"
        svg = svg.replace(f'id="{name}"', f'id="{own}"').replace(f"url(#{name})", f"url(#{own})")
    svg = re.sub(r' (?:pointer-events|role|aria-[a-z]+)="[^"]*"', "", svg)
    svg = re.sub(r' class="(?:background|foreground|mark-[a-z]+)[^"]*"', "", svg)
    svg = re.sub(r'<path(?: d="(?:M0,0h0v0h0Z)?"| display="none")+/>', "", svg)
    # Coordinates need no more than two decimals; the text between tags keeps all of its own.
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d+\.\d{2})\d+", r"\1", tag[0]), svg)
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    assert size is not None
    label = escape(f"{figure.title}. {figure.description}", quote=True)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart {layout.name}" role="img" '
        f'aria-label="{label}" viewBox="0 0 {size[1]} {size[2]}" '
        f'style="--natural: {size[1]}px">'
    )
    return re.sub(r"^<svg[^>]*>", head, svg, count=1)
