"""The report on a log of several tuners: figures, table, sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_autotvm import write_autotvm

from toolkit.datasets import ingest
from toolkit.reports import ReportInputs, render_html, report_summary
from toolkit.reports.figures import report_figures
from toolkit.reports.headline import headline
from toolkit.reports.page.charts import NARROW, WIDE
from toolkit.reports.page.drawing import specification
from toolkit.reports.sections.analysis import decision_label


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Summary of a dataset in which two tuners measured the same tasks, one with failures."""
    root = tmp_path_factory.mktemp("several")
    shapes = [(16, 32, 7), (32, 32, 7)]
    write_autotvm(root / "logs" / "steady" / "a.log", shapes, seed=1, noise=0.02)
    write_autotvm(root / "logs" / "failing" / "a.log", shapes, seed=2, noise=0.02, failing=0.3)
    ingest([root / "logs"], root / "dataset")
    return report_summary(ReportInputs(dataset=root / "dataset"))


def test_the_page_answers(several: dict[str, Any]) -> None:
    page = render_html(several)
    for words in (
        "Which tasks dominate",
        "Which decision matters most",
        "What each tuner reached, and when",
        "tile_oc",
        "Repeats inside a record scatter",
        "tuners are identified by folder 1 above the file",
    ):
        assert words in page


def test_figures_of_the_analysis_draw_what_the_summary_says(several: dict[str, Any]) -> None:
    figures = {figure.key: figure for figure in report_figures(several)["analysis"]}
    # Everything was measured: nothing is to be expected of continuing.
    assert set(figures) == {"dataset-shares", "dataset-knobs", "dataset-tuners"}
    for layout in (WIDE, NARROW):
        spec = specification(figures["dataset-shares"], layout)
        drawn = [row for row in spec["data"]["values"] if row["series"] == "of the summed latency"]
        shares = [task["latency_share"] for task in several["dataset"]["tasks"]]
        assert sorted(row["share"] for row in drawn) == pytest.approx(sorted(shares))
    effects = {row["effect"] for row in several["dataset"]["knobs"]}
    spec = specification(figures["dataset-knobs"], WIDE)
    assert {row["effect"] for row in spec["data"]["values"]} <= effects


def test_the_headline_says_what_failures_cost_and_names_a_tie(several: dict[str, Any]) -> None:
    found = several["headline"]
    failed = several["dataset"]["failing_s"] / several["dataset"]["measuring_s"]
    assert failed == pytest.approx(several["dataset"]["failed"] / several["dataset"]["records"])
    assert "of the time" in found["title"]
    assert any("tile_oc decides most" in text for text in found["findings"])
    # Two tasks make no interval: no difference between tuners can be shown.
    assert any("show no difference to" in text for text in found["findings"])


def test_tuners_that_are_apart_are_not_called_tied(several: dict[str, Any]) -> None:
    first, second = several["dataset"]["tuners"]["tuners"]

    def reached(tuner: dict[str, Any], low: float, high: float | None) -> dict[str, Any]:
        nearest = {**tuner["reached"][-1], "evaluations_interval": [low, high]}
        return {**tuner, "reached": [*tuner["reached"][:-1], nearest]}

    def said(one: dict[str, Any], other: dict[str, Any]) -> str:
        tuners = {**several["dataset"]["tuners"], "tuners": [one, other]}
        dataset = {**several["dataset"], "tuners": tuners}
        live = {"verdicts": [], "missing": "x"}
        return headline(dataset, [], [], [], live)["findings"][-1]

    assert "no difference" not in said(reached(first, 3, 9), reached(second, 10, None))
    assert "no difference" in said(reached(first, 3, 10), reached(second, 10, None))
    assert "no difference" in said(reached(first, 3, None), reached(second, 90, 100))


def test_an_empty_dataset_can_be_reported(tmp_path: Path) -> None:
    from loglines import autotvm, write

    from toolkit.datasets import manifest

    ingest([write(tmp_path / "a.log", autotvm())], tmp_path / "dataset")
    found = manifest.load(tmp_path / "dataset")
    found.records.clear()
    found.sources.clear()
    manifest.save(tmp_path / "dataset", found)
    page = render_html(report_summary(ReportInputs(dataset=tmp_path / "dataset")))
    assert "What the record says" not in page


def test_a_narrow_page_cuts_the_workload_before_the_decision() -> None:
    name = "tile:conv1d_nlc:i2 · conv1d_nlc"
    assert decision_label(name, 34) == name
    assert decision_label(name, 21) == "tile:conv1d_nlc:i2"
    assert decision_label("tile:C:i1 · pad_temp+matmul_long", 21) == "tile:C:i1 · matmu…ong"
    assert (
        decision_label("SP:s3:i15 · 3458e75493bb4bb042e539b5ff4818fb", 34) == "SP:s3:i15 · 3458e754"
    )
