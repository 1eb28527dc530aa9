"""The page and its figures: self-contained, complete, drawn from the summary. No bytes compared."""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from toolkit import show
from toolkit.datasets import open_dataset
from toolkit.replay import parse_scenario, simulate
from toolkit.reports import ReportInputs, export_figures, render_html, report_summary
from toolkit.reports.figures import report_figures
from toolkit.reports.page import charts
from toolkit.reports.page.charts import (
    NARROW,
    TIMES,
    WIDE,
    Figure,
    Layout,
    labels_of,
    log_axis,
)
from toolkit.reports.page.drawing import draw_svg, inline_svg, specification
from toolkit.workspace import Workspace

SECTIONS = ("findings", "dataset", "throughput", "mutation", "strategies", "live", "provenance")
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Collects what the tests ask for, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.targets: list[str] = []
        self.loads: list[str] = []
        self.charts: list[dict[str, str | None]] = []
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []
        self.stray: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        if found.get("id"):
            self.ids[str(found["id"])] += 1
        if tag == "a":
            self.targets.append(str(found.get("href")))
        if tag == "svg" and "chart" in str(found.get("class")):
            self.charts.append(found)
        for name in ("src", "srcset", "data", "xlink:href"):
            if found.get(name):
                self.loads.append(str(found[name]))
        if tag == "link":
            self.loads.append(str(found.get("href")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open[-1] != tag:
            self.stray.append(tag)
        else:
            self.open.pop()


@pytest.fixture(scope="module")
def html(summary: dict[str, Any]) -> str:
    return render_html(summary)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_it_needs_no_network(html: str, page: Page) -> None:
    assert page.loads == []
    addresses = set(re.findall(r"https?://[^\"'\s<)]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in html
    assert "url(http" not in html


def test_it_is_well_formed_and_links_resolve(page: Page) -> None:
    assert page.stray == []
    assert page.open == []
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert {target.lstrip("#") for target in page.targets} <= set(page.ids)
    assert set(SECTIONS) <= set(page.ids)


def test_every_figure_is_there_for_wide_and_narrow_screens(
    page: Page, summary: dict[str, Any]
) -> None:
    figures = [figure for part in report_figures(summary).values() for figure in part]
    assert len(figures) >= 15
    assert len({figure.key for figure in figures}) == len(figures)
    classes = Counter(str(chart["class"]) for chart in page.charts)
    assert classes == {"chart wide": len(figures), "chart narrow": len(figures)}
    assert page.tags["figcaption"] == len(figures)


def test_every_figure_says_how_to_read_it_and_what_it_does_not_show(
    page: Page, summary: dict[str, Any]
) -> None:
    for part in report_figures(summary).values():
        for figure in part:
            for text in (figure.reading, figure.limits, figure.description):
                assert text.rstrip().endswith((".", ")")), figure.key
                assert len(text) > 20
    for chart in page.charts:
        assert chart["role"] == "img"
        assert len(str(chart["aria-label"])) > 30


def test_figures_follow_the_system_colours(html: str) -> None:
    drawn = "".join(re.findall(r'<svg xmlns[^>]*class="chart.*?</svg>', html, flags=re.S))
    assert "var(--s1" in drawn
    assert "var(--ink" in drawn
    raw = set(re.findall(r'(?:fill|stroke)="(#[0-9a-fA-F]{3,6})"', drawn))
    assert raw == set(), "a colour of its own would not follow light and dark"


def test_the_numbers_of_the_summary_are_on_the_page(html: str, summary: dict[str, Any]) -> None:
    assert f"{summary['dataset']['records']:,}" in html
    for simulation in summary["simulations"]:
        for row in simulation["strategies"]:
            assert row["strategy"] in html
    for verdict in summary["live"]["verdicts"]:
        if verdict["ratio"] is not None:
            assert f"{verdict['ratio']:.3f}" in html
    assert summary["dataset"]["fingerprint"] in html


def test_numbers_in_figures_keep_their_digits(summary: dict[str, Any]) -> None:
    (figure,) = report_figures(summary)["live"]
    drawn = inline_svg(figure, WIDE).replace("\N{NO-BREAK SPACE}", " ")
    assert "0.900 [0.870, 0.930]" in drawn


def test_an_interval_without_bounds_does_not_squeeze_the_others(summary: dict[str, Any]) -> None:
    wide = {**summary["live"]["verdicts"][0], "interval": [0.007, 131.2], "verdict": "undecided"}
    live = {**summary["live"], "verdicts": [*summary["live"]["verdicts"], wide]}
    (figure,) = report_figures({**summary, "live": live})["live"]
    drawn = inline_svg(figure, WIDE).replace("\N{NO-BREAK SPACE}", " ")
    assert "[0.00700, 131]" in drawn
    assert "1.5" in drawn  # the axis ends near 1, not at 131
    assert "100" not in re.findall(r">([\d.]+)<", drawn)


def test_missing_parts_name_their_command(tuning: Workspace) -> None:
    html = render_html(report_summary(ReportInputs(dataset=tuning.dataset)))
    for command in ("train throughput", "train mutation", "simulate", "validate"):
        assert f"<code>toolkit {command}</code>" in html


def test_a_page_without_a_dataset_says_what_makes_one(tuning: Workspace) -> None:
    html = render_html(report_summary(ReportInputs(validation=tuning.validation)))
    assert "<code>toolkit ingest LOGS</code>" in html
    assert 'id="fig-live-verdicts"' in html


def test_a_single_run_is_shown_without_an_interval(tuning: Workspace, tmp_path: Path) -> None:
    dataset = open_dataset(tuning.dataset)
    one = {
        "name": "one",
        "strategy": [{"name": "random"}, {"name": "grid"}],
        "tasks": {"ids": list(dataset.tasks())[:1]},
        "seeds": 1,
    }
    simulate(dataset, parse_scenario(one), out=tmp_path / "one")
    summary = report_summary(ReportInputs(simulations=(tmp_path / "one",)))
    html = render_html(summary)
    assert 'id="fig-one-best-so-far-evaluations"' in html
    assert "None" not in html
    assert "[–" not in html
    figures = {figure.key: figure for figure in report_figures(summary)["replay-0"]}
    assert "∞" not in figures["one-evaluations-to-1pct"].description
    assert "[" not in figures["one-evaluations-to-1pct"].description


def test_replays_of_one_name_have_figures_of_their_own(tuning: Workspace, tmp_path: Path) -> None:
    folders = tuple(tmp_path / name for name in ("a b", "a-b"))
    for folder in folders:
        shutil.copytree(tuning.simulation("small"), folder)
    figures = report_figures(report_summary(ReportInputs(simulations=folders)))
    keys = [figure.key for part in figures.values() for figure in part]
    assert len(keys) == len(set(keys)) > 2
    # They are names of files, and ids.
    assert [key for key in keys if not re.fullmatch(r"[\w.-]+", key)] == []


def test_networks_have_a_table_and_a_figure(networks: Path) -> None:
    html = render_html(report_summary(ReportInputs(simulations=(networks,))))
    assert 'id="fig-small-networks-schedulers"' in html
    assert "round-robin" in html
    assert Page(html).stray == []


def test_forecasts_have_a_table_with_their_intervals(networks: Path, html: str) -> None:
    found = report_summary(ReportInputs(simulations=(networks,)))
    shown = render_html(found)
    assert "What a run on the device will show" in shown
    (replay,) = found["simulations"]
    for row in replay["forecast"]["strategies"].values():
        for name in ("auc", "final", "chosen"):
            assert f'data-v="{row[name]}"' in shown
    assert Page(shown).stray == []
    assert "What a run on the device will show" not in html


def test_names_are_escaped(tuning: Workspace) -> None:
    title = "<script>alert(1)</script>"
    html = render_html(report_summary(ReportInputs(validation=tuning.validation), title=title))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_equal_summaries_give_equal_pages(summary: dict[str, Any], html: str) -> None:
    assert render_html(summary) == html


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_figures_fit_their_layout(summary: dict[str, Any], layout: Any) -> None:
    for part in report_figures(summary).values():
        for figure in part:
            found = specification(figure, layout)
            assert found["width"] == layout.width
            assert found["autosize"]["type"] == "fit-x"


def test_export_without_a_browser(summary: dict[str, Any], tmp_path: Path) -> None:
    only = {**summary, "throughput": [], "simulations": [], "mutation": []}
    written = export_figures(only, tmp_path / "figures")
    assert {path.suffix for path in written} == {".svg", ".png"}
    for path in written:
        head = path.read_bytes()[:8]
        assert head.startswith(b"<svg" if path.suffix == ".svg" else b"\x89PNG\r\n\x1a\n")
    assert "var(--" not in next(p for p in written if p.suffix == ".svg").read_text()


def test_task_labels_keep_what_tells_tasks_apart() -> None:
    name = "conv2d_NCHWc.x86(1x256x56x56,256x256x3x3,1,1,1,1,NCHW,NCHW,float32)"
    assert show.task_label(name, 40) == "conv2d_NCHWc 256x56x56 256x256x3x3"
    assert show.task_label(name, 20) == "conv2d 256x56x56 25…"
    strided = name.replace("x3x3,1,1,", "x3x3,2,2,")
    assert show.task_label(strided, 40) == "conv2d_NCHWc/2 256x56x56 256x256x3x3"
    assert show.task_label(strided, 20) == "conv2d/2 256x56x56…"
    assert show.task_label("dense(1x512,1000x512,float32)", 40) == "dense 512 1000x512"
    hashed = "6129df1f3d5aa0f2f8bd83ea6d5d9e4b(12,128,128)"
    assert show.task_label(hashed, 40) == "6129df1f 12 128 128"
    assert show.task_label("softmax", 20) == "softmax"
    assert show.task_label("matmul:61,127,128(61x128,128x127,61x127)", 20) == "matmul 61,127,128"
    small = Layout("small", width=300, rows=3, label_chars=20)
    assert len(set(labels_of([{"name": name}] * 3, small))) == 3


def test_a_fused_operator_is_named_by_its_main_one_and_has_no_stride_of_a_bias() -> None:
    name = "pad_temp+conv2d_nchw+T_add+T_relu(1x256x14x14,512x256x3x3,512,512,1x512x1x1,1x512x7x7)"
    assert show.task_label(name, 29) == "conv2d 256x14x14 512x256x3x3…"
    assert show.task_label(name, 27) == "conv 256x14x14 512x256x3x3…"
    assert show.task_label(name, 200).startswith("pad_temp+conv2d_nchw+T_add+T_relu 256x14x14 ")
    assert show.task_label("data_pad+B+bgemm+A(1x7x7x64,4x4x64x64)", 20) == "bgemm 7x7x64 4x4x64…"


def test_a_task_that_is_a_hash_is_told_by_its_loops() -> None:
    hashed = "3458e75493bb4bb042e539b5ff4818fb(128,3072,768,3072,1,768,128,768)"
    assert show.task_label(hashed, 22) == "3458 128 3072 768 307…"
    assert show.task_label(hashed, 60) == "3458e754 128 3072 768 3072 1 768 128 768"


def test_of_a_name_that_is_too_long_the_numbers_are_kept() -> None:
    name = "depthwise_conv2d_nhwc:1,56,56,32,3,1,1(1x56x56x32)"
    assert show.task_label(name, 26) == "depthwise 1,56,56,32,3,1,1"


def test_labels_of_an_axis_keep_apart() -> None:
    """On a narrow page, too, in whose font they may be wider than in the one they were drawn in."""

    def draw(layout: Layout) -> Any:
        x = log_axis(1.0, 1200.0, "times", TIMES)
        return charts.chart([{"x": 1.0}, {"x": 1200.0}]).mark_point().encode(x=alt.X("x:Q", **x))

    made = Figure("axis", "An axis", "", "", "", draw)
    svg = draw_svg(made, Layout("small", width=160, rows=3, label_chars=20, font_size=11))
    texts = re.findall(r'translate\(([\d.]+),[^>]*opacity="1">([\d,]+×)<', svg)
    shown = [(float(at), text) for at, text in texts]
    assert 2 <= len(shown) < 7
    for (left, one), (right, other) in itertools.pairwise(shown):
        assert right - left >= 11 * 0.63 * (len(one) + len(other)) / 2
