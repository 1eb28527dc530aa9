"""Two workspaces side by side."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
from made_autotvm import write_autotvm
from running import here

from toolkit.datasets import ingest
from toolkit.reports import find_inputs, render_html, report_summary
from toolkit.reports.sections.comparison import comparison_section
from toolkit.workspace import Workspace


def by_title(found: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    return {group["title"]: {r["what"]: r for r in group["rows"]} for group in found["groups"]}


def test_a_workspace_beside_itself_is_all_ones(tuning: Workspace) -> None:
    inputs = find_inputs(tuning.root)
    summary = report_summary(inputs, compare=("itself", inputs))
    assert orjson.loads(orjson.dumps(summary)) == summary
    found = summary["comparison"]
    assert found["other"] == "itself" and found["latency_ratio"] == pytest.approx(1.0)
    groups = by_title(found)
    assert {row["ratio"] for rows in groups.values() for row in rows.values()} <= {1.0, None}
    assert groups["Dataset"]["records"]["here"] == summary["dataset"]["records"]
    best = {task["name"]: task["best_s"] for task in summary["dataset"]["tasks"]}
    latencies = groups["Best measured latency"]
    assert len(latencies) == len(best)
    assert sorted(row["here"] for row in latencies.values()) == sorted(best.values())
    top = summary["throughput"][0]["metrics"]["top1"]
    row = groups["Model: throughput"]["top1"]
    assert (row["here"], row["here_interval"]) == (top["value"], [top["low"], top["high"]])
    assert "random: area under the curve" in groups["Replay “small”"]
    confirmed = groups["Confirmed: latency over the incumbent's"]
    assert [row["ratio"] for row in confirmed.values()] == [1.0, 1.0, None, 1.0]
    assert all(group["note"] is None or "two" not in group["note"] for group in found["groups"])
    page = render_html(summary)
    assert 'id="comparison"' in page and "Comparison with itself" in page
    assert 'id="comparison"' not in render_html({**summary, "comparison": None})


def test_what_both_have_is_compared_and_the_rest_left_out(summary: dict[str, Any]) -> None:
    other: dict[str, Any] = copy.deepcopy(summary)
    tasks = other["dataset"]["tasks"]
    gone = tasks.pop()
    for number, task in enumerate(tasks, start=1):
        task["best_s"] *= 2.0**number
    # Of a task of two machines the fastest counts, whichever comes first.
    tasks.append({**tasks[0], "best_s": 100 * tasks[0]["best_s"], "machine": "a slow one"})
    other["throughput"][0]["dataset_fingerprint"] = "another"
    other["mutation"] = []
    other["simulations"][0]["strategies"] = other["simulations"][0]["strategies"][:1]
    found = comparison_section(summary, other, "other")
    groups = by_title(found)
    rows = groups["Best measured latency"]
    assert not any(gone["name"] in name for name in rows)
    ratios = [row["ratio"] for row in rows.values()]
    assert ratios == pytest.approx([2.0**-n for n in range(1, len(rows) + 1)])
    assert found["latency_ratio"] == pytest.approx(2.0 ** -((len(rows) + 1) / 2))
    assert "Model: mutation" not in groups
    notes = {group["title"]: group["note"] for group in found["groups"]}
    assert "two datasets" in notes["Model: throughput"]
    kept = other["simulations"][0]["strategies"][0]["strategy"]
    assert {what.partition(":")[0] for what in groups["Replay “small”"]} == {kept}


def test_the_command_compares_two_workspaces(tuning: Workspace, tmp_path: Path) -> None:
    write_autotvm(tmp_path / "log.json", [(16, 32, 7), (64, 64, 7)])
    ingest(tmp_path / "log.json", tmp_path / "second" / "dataset", workers=0)
    command = ("report", "--workspace", "second", "--compare", tuning.root)
    code, said, err = here(*command, cwd=tmp_path)
    assert code == 0, err
    assert "Best measured latency" in said and "here over there" in said
    assert "Comparison with " in (tmp_path / "second" / "report.html").read_text()
    code, said, err = here(*command, "--json", cwd=tmp_path)
    assert code == 0, err
    found = orjson.loads(said)["comparison"]
    titles = [group["title"] for group in found["groups"]]
    assert titles == ["Dataset", "Best measured latency"]
    assert len(found["groups"][1]["rows"]) == 1
    empty = ("report", "--workspace", "second", "--compare", "nothing")
    code, _, err = here(*empty, cwd=tmp_path)
    assert code == 1 and "nothing" in err
