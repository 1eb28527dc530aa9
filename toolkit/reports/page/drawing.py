"""How a figure becomes SVG for the page, SVG or PNG for a file, or a small curve in a table."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import altair as alt
import vl_convert

from toolkit.reports.page.charts import EXPORT, Figure, Layout
from toolkit.reports.page.theme import altair_config, with_variables

PNG_SCALE = 2.0
GRAMMAR = ".".join(str(alt.SCHEMA_VERSION).lstrip("v").split(".")[:2])
"""Version of Vega-Lite that altair writes, as vl-convert names it (``6.4``)."""

SPARK_WIDTH, SPARK_HEIGHT, SPARK_PAD = 120, 26, 2


def specification(figure: Figure, layout: Layout) -> dict[str, Any]:
    """Vega-Lite specification of a figure."""
    chart = figure.draw(layout).properties(
        width=layout.width, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
    )
    if layout.legend:
        chart = chart.properties(title=figure.title, background="#ffffff")
    return {**chart.to_dict(), "config": {**altair_config(layout.font_size), "aria": False}}


def draw_svg(figure: Figure, layout: Layout = EXPORT) -> str:
    """Draw a figure as a standalone SVG document, in light colours."""
    return str(vl_convert.vegalite_to_svg(specification(figure, layout), vl_version=GRAMMAR))


def draw_png(figure: Figure) -> bytes:
    """Draw a figure as PNG at twice its size, on white."""
    png: bytes = vl_convert.vegalite_to_png(
        specification(figure, EXPORT), vl_version=GRAMMAR, scale=PNG_SCALE
    )
    return png


def inline_svg(figure: Figure, layout: Layout) -> str:
    """Draw a figure for the page: scalable, with CSS variables and unique ids."""
    svg = with_variables(draw_svg(figure, layout))
    # The engine numbers clips across all figures: equal figures would differ.
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


def sparkline(logs: Sequence[Mapping[str, Any]]) -> str:
    """Best so far (0 to 1, upwards) against records (logarithmic), one line per log, as SVG.

    ``logs`` are a task's ``curves``. Drawn by hand: a chart in each cell would be too large.
    """
    most = max((log["records"] for log in logs), default=0)
    if most < 2:
        return ""
    across = (SPARK_WIDTH - 2 * SPARK_PAD) / math.log(most)
    up = SPARK_HEIGHT - 2 * SPARK_PAD
    paths = []
    for log in logs:
        x = [SPARK_PAD + across * math.log(at) for at in log["at"]]
        y = [SPARK_PAD + up * (1.0 - relative) for relative in log["relative"]]
        steps = [f"H{a:.1f}V{b:.1f}" for a, b in zip(x[1:], y[1:], strict=True)]
        paths.append(f'<path d="M{x[0]:.1f},{y[0]:.1f}{"".join(steps)}"/>')
    last = logs[0]["relative"][-1]
    label = f"best so far in {len(logs)} logs, {100 * last:.0f} % at the end of the longest"
    return (
        f'<svg class="spark" role="img" aria-label="{label}" '
        f'viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" width="{SPARK_WIDTH}" '
        f'height="{SPARK_HEIGHT}">{"".join(paths)}</svg>'
    )
