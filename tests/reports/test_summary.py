"""The summary: what it says agrees with what it was made from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from toolkit.datasets import open_dataset
from toolkit.errors import DatasetError, ModelError, ToolkitError
from toolkit.reports import ReportInputs, find_inputs, render_html, report_summary
from toolkit.reports.sections.dataset import SHARES
from toolkit.reports.sections.throughput import density
from toolkit.training.trained.store import seal
from toolkit.workspace import Workspace


def test_it_is_plain_json_and_nothing_is_missing(summary: dict[str, Any]) -> None:
    assert orjson.loads(orjson.dumps(summary)) == summary
    assert summary["missing"] == {}


def test_equal_inputs_give_equal_summaries(tuning: Workspace, summary: dict[str, Any]) -> None:
    assert report_summary(find_inputs(tuning.root)) == summary


def test_dataset_counts_and_best_are_the_datasets(
    tuning: Workspace, summary: dict[str, Any]
) -> None:
    dataset = open_dataset(tuning.dataset)
    part = summary["dataset"]
    assert part["records"] == dataset.records().select(pl.len()).collect().item()
    assert part["lines"] == part["records"] + part["duplicates"] + part["rejected"]
    candidates = dataset.candidates()
    for task in part["tasks"]:
        own = candidates.filter(
            (pl.col("task_id") == task["task_id"]) & pl.col("latency_s").is_not_null()
        )["latency_s"]
        assert task["best_s"] == pytest.approx(own.min())
        assert task["spread"]["q50"] == pytest.approx(own.median() / own.min())
        assert task["rarity"] == sorted(task["rarity"])
        assert len(task["rarity"]) == len(SHARES)
        assert task["enumerated"]


def test_curves_rise_to_the_best(summary: dict[str, Any]) -> None:
    for task in summary["dataset"]["tasks"]:
        (log,) = task["curves"]
        assert log["records"] == task["records"]
        assert log["relative"] == sorted(log["relative"])
        assert log["relative"][-1] == 1.0
        assert log["at"][-1] == log["records"]


def test_model_figures_are_the_manifests(tuning: Workspace, summary: dict[str, Any]) -> None:
    manifest = orjson.loads((tuning.model("throughput") / "manifest.json").read_bytes())
    (model,) = summary["throughput"]
    top1 = model["metrics"]["top1"]
    assert top1["value"] == manifest["metrics"]["top1"]
    assert [top1["low"], top1["high"]] == manifest["metrics"]["top1_interval"]
    assert [row["k"] for row in model["top_k"]] == [1, 5, 10]
    assert sum(cell["candidates"] for cell in model["density"]["cells"]) == len(
        manifest["predictions"]["measured"]
    )
    assert sum(row["share"] for row in model["importance"]) <= 1.0 + 1e-9
    assert all("conv2d" in task["name"] for task in model["tasks"])


def test_mutation_figures_are_the_manifests(tuning: Workspace, summary: dict[str, Any]) -> None:
    manifest = orjson.loads((tuning.model("mutation") / "manifest.json").read_bytes())
    (model,) = summary["mutation"]
    assert [level["level"] for level in model["levels"]] == ["knob", "rule", "way"]
    for level in model["levels"]:
        theirs = manifest["metrics"]
        if level["level"] != "knob":
            theirs = theirs["levels"][level["level"]]
        shares = level["shares"]
        assert set(shares) == {"model", "base_rate", "fixed_weights", "uniform"}
        assert shares["model"]["value"] == theirs["gain_share"]
        assert shares["base_rate"]["value"] == theirs["gain_share_base_rate"]
        assert [shares["model"]["low"], shares["model"]["high"]] == theirs["gain_share_interval"]
    own = [row["gain_model"] / row["gain_oracle"] for row in model["tasks"]]
    assert own == sorted(own)


def test_an_unproven_lead_is_said_to_be_one(tuning: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "mutation"
    shutil.copytree(tuning.model("mutation"), folder)
    content = orjson.loads((folder / "manifest.json").read_bytes())
    content["metrics"]["ahead_of_base_rate_interval"] = [-0.01, 0.2]
    (folder / "manifest.json").write_bytes(orjson.dumps(seal(content)))
    (finding,) = [report_summary(ReportInputs(models=(folder,)))["headline"]["title"]]
    assert "the difference is not proven" in finding


def test_density_counts_what_lies_outside_at_its_edge() -> None:
    found = density({"predicted": [0.5, -9.0, -0.1], "measured": [0.0, -9.0, -0.1]})
    assert found is not None
    assert sum(cell["candidates"] for cell in found["cells"]) == 3
    assert density({"predicted": [], "measured": []}) is None
    assert density(None) is None


def test_ranks_follow_from_proven_differences(summary: dict[str, Any]) -> None:
    (simulation,) = summary["simulations"]
    for row in simulation["strategies"]:
        worse = {
            pair["first"] if pair["second"] == row["strategy"] else pair["second"]
            for pair in simulation["pairs"]
            if (pair["second"] == row["strategy"] and pair["verdict"] == "better")
            or (pair["first"] == row["strategy"] and pair["verdict"] == "worse")
        }
        assert set(row["beaten_by"]) == worse
        assert row["rank"] == 1 + len(worse)
        assert row["strategy"] not in row["tied_with"]


def test_the_profile_agrees_with_the_median_and_the_share(summary: dict[str, Any]) -> None:
    (simulation,) = summary["simulations"]
    for unit, profile in simulation["profile"].items():
        for row in simulation["strategies"]:
            shares = profile["strategies"][row["strategy"]]
            assert shares == sorted(shares)
            assert shares[-1] == pytest.approx(row["reached_share"])
            middle = row[f"median_{unit}_to_1pct"]
            if middle is not None:
                below = [
                    s for g, s in zip(profile["grid"], shares, strict=True) if g < 0.8 * middle
                ]
                assert all(share <= 0.5 for share in below)


def test_headline_names_the_first_with_its_interval(summary: dict[str, Any]) -> None:
    (simulation,) = summary["simulations"]
    text = " ".join([summary["headline"]["title"], *summary["headline"]["findings"]])
    for row in simulation["strategies"]:
        if row["rank"] == 1:
            assert row["strategy"] in summary["headline"]["title"]
    assert "the optimum" in text  # every task was enumerated
    assert "1 of 4 validated tasks" in text
    assert "not trained on" in text
    caveats = " ".join(summary["headline"]["caveats"])
    assert "2 of 2 cores are busy" in caveats
    assert "4 tasks and 3 seeds" in caveats


def test_parts_of_another_dataset_are_called_out(tuning: Workspace, tmp_path: Path) -> None:
    root = tmp_path / "tuning"
    shutil.copytree(tuning.root, root)
    path = root / "simulations" / "small" / "summary.json"
    content = orjson.loads(path.read_bytes())
    content["dataset"]["fingerprint"] = "0" * 16
    path.write_bytes(orjson.dumps(content))
    caveats = report_summary(find_inputs(root))["headline"]["caveats"]
    assert any("replay 'small' was made from another state" in caveat for caveat in caveats)


def test_without_enumeration_nothing_is_called_optimum(tuning: Workspace, tmp_path: Path) -> None:
    root = tmp_path / "tuning"
    shutil.copytree(tuning.simulation("small"), root / "simulations" / "small")
    path = root / "simulations" / "small" / "summary.json"
    content = orjson.loads(path.read_bytes())
    next(iter(content["tasks"].values()))["enumerated"] = False
    path.write_bytes(orjson.dumps(content))
    found = report_summary(find_inputs(root))
    text = " ".join([found["headline"]["title"], *found["headline"]["findings"]])
    assert "optimum" not in text
    assert "best recorded" in text
    assert set(found["missing"]) == {"dataset", "throughput", "mutation", "live"}


def test_a_strategy_that_never_gets_there_has_no_median(tuning: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    shutil.copytree(tuning.simulation("small"), folder)
    content = orjson.loads((folder / "summary.json").read_bytes())
    for row in content["strategies"].values():
        row["median_evaluations_to_1pct"] = None
        row["median_evaluations_to_1pct_interval"] = [40.0, None]
        row["reached_share"] = 0.25
    for pair in content["comparisons"]["pairs"]:
        first = min(pair["first"], pair["second"])
        pair["verdict"] = "better" if pair["first"] == first else "worse"
    (folder / "summary.json").write_bytes(orjson.dumps(content))
    headline = report_summary(ReportInputs(simulations=(folder,)))["headline"]
    assert "genetic came first, but only 25.0" in headline["title"]
    assert "of random search, only 25.0" in headline["title"]
    assert headline["tiles"][0]["value"].startswith("25")


@pytest.mark.parametrize(
    ("can_decide", "said"),
    [
        (True, "share the first place: no difference between them is proven"),
        (False, "share the first place: no difference between 4 strategies can be proven with 3"),
    ],
)
def test_ties_share_the_first_place(
    tuning: Workspace, tmp_path: Path, can_decide: bool, said: str
) -> None:
    folder = tmp_path / "small"
    shutil.copytree(tuning.simulation("small"), folder)
    content = orjson.loads((folder / "summary.json").read_bytes())
    for pair in content["comparisons"]["pairs"]:
        pair["verdict"] = "tied"
    power = {"units": "tasks", "count": 3, "needed": 8, "strategies": 4, "can_decide": can_decide}
    content["comparisons"]["power"] = power
    (folder / "summary.json").write_bytes(orjson.dumps(content))
    title = report_summary(ReportInputs(simulations=(folder,)))["headline"]["title"]
    assert said in title


def test_networks_keep_the_replays_figures(networks: Path) -> None:
    theirs = orjson.loads((networks / "summary.json").read_bytes())["network"]
    (simulation,) = report_summary(ReportInputs(simulations=(networks,)))["simulations"]
    network = simulation["network"]
    assert network["networks"] == {"net-a": 4}
    assert network["strategy"] == "random"
    assert {row["scheduler"]: row for row in network["schedulers"]} == theirs["schedulers"]
    for line in network["curves"]["schedulers"].values():
        assert line["mean"] == sorted(line["mean"])
        assert all(low <= high for low, high in zip(line["low"], line["high"], strict=True))
    for scheduler, line in network["curves"]["schedulers"].items():
        last = [r["curve"]["relative"][-1] for r in theirs["runs"] if r["scheduler"] == scheduler]
        assert line["mean"][-1] == pytest.approx(sum(last) / len(last))


def test_networks_name_the_strategy_that_searched_inside(networks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small-networks"
    shutil.copytree(networks, folder)
    content = orjson.loads((folder / "summary.json").read_bytes())
    content["scenario"]["strategy"].insert(0, {"name": "grid", "label": "first in the file"})
    (folder / "summary.json").write_bytes(orjson.dumps(content))
    (simulation,) = report_summary(ReportInputs(simulations=(folder,)))["simulations"]
    assert simulation["network"]["strategy"] == "first in the file"


def test_the_replay_of_most_strategies_comes_first(networks: Path, tuning: Workspace) -> None:
    both = ReportInputs(simulations=(networks, tuning.simulation("small")))
    headline = report_summary(both)["headline"]
    alone = report_summary(ReportInputs(simulations=(tuning.simulation("small"),)))["headline"]
    assert headline["title"] == alone["title"]


def test_two_replays_of_one_name_are_told_by_their_folders(
    tuning: Workspace, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    shutil.copytree(tuning.simulation("small"), again)
    found = report_summary(ReportInputs(simulations=(tuning.simulation("small"), again)))
    first, second = (one["name"] for one in found["simulations"])
    assert first.startswith("small (") and second == f"small ({again})"
    assert first != second
    page = render_html(found)
    assert f"Replay “{first}”" in page and f"Replay “{second}”" in page


def test_nothing_at_all_is_an_error_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="toolkit ingest"):
        find_inputs(tmp_path / "tuning")


@pytest.mark.parametrize("what", ["dataset", "validation"])
def test_a_named_folder_must_hold_it(what: str, tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="make it with: toolkit"):
        find_inputs(tmp_path, **{what: tmp_path / "absent"})


@pytest.mark.parametrize("what", ["models", "simulations"])
def test_named_folders_must_hold_it(what: str, tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="make it with: toolkit"):
        find_inputs(tmp_path, **{what: [tmp_path / "absent"]})


def test_damaged_files_are_named(tuning: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "summary.json").write_text("{")
    with pytest.raises(ModelError, match="toolkit simulate"):
        report_summary(ReportInputs(simulations=(folder,)))
