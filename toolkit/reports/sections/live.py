"""Live verdicts: which winners were proven on the device, and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt

from toolkit import show
from toolkit.datasets import task_name
from toolkit.records import Task
from toolkit.reports.page import charts
from toolkit.reports.page.charts import Figure, Layout, figure
from toolkit.reports.page.inputs import VERDICTS_FILE, Section, reading
from toolkit.reports.page.theme import light

KEPT = (
    *("task_id", "verdict", "reason", "ratio", "interval", "aa_interval", "confidence", "blocks"),
    *("incumbent", "incumbent_latency_s", "winner_latency_s", "winner_from", "winner_id"),
    *("screened", "refined", "seconds", "target"),
)
# How a verdict is drawn: the role of its colour, and its shape.
VERDICTS = {
    "better": ("good", "circle"),
    "not better": ("baseline", "square"),
    "undecided": ("open", "diamond"),
}
# Ratios beyond these are drawn as arrows: a few blocks can leave an interval without bounds.
LEAST, MOST = 0.4, 2.5


def live_section(folder: Path | None) -> dict[str, Any]:
    """Summarise the verdicts of ``toolkit validate``.

    ``ratio`` is the winner's latency over the incumbent's (below 1 is faster) with its confidence
    interval; ``aa_interval`` is what the incumbent shows against itself.
    """
    if folder is None:
        return {"missing": "toolkit validate", "verdicts": []}
    with reading(folder / VERDICTS_FILE, "toolkit validate") as content:
        verdicts = [_verdict(verdict) for verdict in content.get("verdicts", [])]
        counts = {
            word.replace(" ", "_"): sum(verdict["verdict"] == word for verdict in verdicts)
            for word in VERDICTS
        }
        return {
            "missing": None,
            "path": str(folder),
            "verdicts": verdicts,
            **counts,
            "warnings": content.get("warnings", []),
            **{key: content.get(key, {}) for key in ("machine", "protocol", "settings")},
            "dataset_fingerprint": content.get("dataset"),
            "seconds": content.get("seconds"),
        }


def _verdict(verdict: Section) -> dict[str, Any]:
    name = verdict.get("name") or verdict["task_id"]
    if verdict.get("arguments") is not None and ":" not in name:
        task = Task(verdict["task_id"], "metaschedule", name, verdict["arguments"], "", "")
        name = task_name(task)
    return {
        **{key: verdict.get(key) for key in KEPT},
        "name": name,
        "rejected": len(verdict.get("rejected") or []),
        "dropped": len(verdict.get("dropped") or {}),
    }


def live_figures(live: Section) -> list[Figure]:
    """Return the figure of the verdicts, where enough blocks were measured for an interval."""
    measured = [verdict for verdict in live["verdicts"] if verdict["interval"] is not None]
    return [_forest(measured)] if measured else []


def _forest(verdicts: list[Section]) -> Figure:
    ends = [end for v in verdicts for end in (*v["interval"], *(v["aa_interval"] or ()))]
    low = max(LEAST, min([*ends, 0.9]) / 1.03)
    high = min(MOST, max([*ends, 1.1]) * 1.03)
    rows = [
        {
            "name": verdict["name"],
            "series": verdict["verdict"],
            "ratio": verdict["ratio"],
            "low": max(low, verdict["interval"][0]),
            "high": min(high, verdict["interval"][1]),
            "beyond_low": verdict["interval"][0] < low,
            "beyond_high": verdict["interval"][1] > high,
            "floor_low": (verdict["aa_interval"] or [1.0])[0],
            "floor_high": (verdict["aa_interval"] or [1.0])[-1],
            "text": f"{show.ratio(verdict['ratio'])} {show.interval(verdict['interval'], 'ratio')}",
        }
        for verdict in verdicts
    ]
    present = {row["series"] for row in rows}
    drawn = {word: look for word, look in VERDICTS.items() if word in present}

    def draw(layout: Layout) -> Any:
        coarse = high / low > 1.7
        ticks = (0.5, 0.7, 1, 1.5, 2) if coarse else (0.8, 0.9, 1, 1.1, 1.2)
        title = "latency of the winner over the incumbent's (left of 1 is faster)"
        values = [tick for tick in ticks if low <= tick <= high]
        x = {
            **charts.log_axis(low, high, title),
            "axis": alt.Axis(title=title, values=values, format="~g"),
        }
        apart = charts.told_apart(drawn, charts.legend(symbolOpacity=1))
        plain = charts.named(rows, layout)
        base = plain.encode(color=apart["color"])
        floor = plain.mark_bar(color=light("axis"), opacity=0.28, height=22)
        arrows = [
            base.transform_filter(f"datum.beyond_{end}")
            .mark_point(shape=f"triangle-{side}", filled=True, size=80, opacity=0.8)
            .encode(x=alt.X(f"{end}:Q", **x))
            for end, side in (("low", "left"), ("high", "right"))
        ]
        return alt.layer(
            floor.encode(x=alt.X("floor_low:Q", **x), x2="floor_high:Q"),
            charts.upright(1.0, 0.7, **x),
            charts.bar_of_interval(base, 0.7, x=alt.X("low:Q", **x), x2="high:Q"),
            *arrows,
            charts.points(base, 110, x=alt.X("ratio:Q", **x), shape=apart["shape"]),
            charts.numbers(plain, layout, dy=-19),
        ).properties(height=max(90, 52 * len(rows)))

    told = [f"{v['name']} {show.ratio(v['ratio'])}, {v['verdict']}" for v in verdicts]
    confidence = verdicts[0]["confidence"]
    level = f"{show.percent(confidence, 2)} " if confidence else ""
    return figure("live-verdicts", draw, level=level, told="; ".join(told))
