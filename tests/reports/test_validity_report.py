"""The report on a model that foresees failures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from made_failures import write_failing
from running import here

from toolkit.datasets import ingest, open_dataset
from toolkit.errors import ModelError
from toolkit.reports import ReportInputs, render_html, report_summary
from toolkit.training import train_validity
from toolkit.training.recipes.recipe import DataOptions, ModelOptions, Recipe
from toolkit.training.trained.store import seal


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small validity model."""
    root = tmp_path_factory.mktemp("validity")
    write_failing(root / "a.log")
    ingest([root / "a.log"], root / "dataset")
    options = ModelOptions(
        library="lightgbm", objective="logistic", rounds=20, params={"num_leaves": 7}
    )
    recipe = Recipe(kind="validity", models=(options,), data=DataOptions(min_records=20))
    train_validity(open_dataset(root / "dataset"), recipe, root / "model", threads=1)
    return root / "model"


def test_figures_are_the_manifests(model: Path) -> None:
    summary: dict[str, Any] = report_summary(ReportInputs(models=(model,)))
    (found,) = summary["validity"]
    theirs = orjson.loads((model / "manifest.json").read_bytes())["metrics"]
    assert found["metrics"]["auc"]["value"] == theirs["auc"]
    assert found["base_rate"]["brier_base_rate"]["value"] == theirs["brier_base_rate"]
    assert found["importance"]
    assert summary["throughput"] == []
    page = render_html(summary)
    assert "Failures foreseen" in page
    assert "What failures are foreseen by" in page
    assert "average_precision" in page


def test_a_model_of_another_kind_is_named(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_bytes(orjson.dumps(seal({**manifest, "kind": "oracle"})))
    with pytest.raises(ModelError, match="kind 'oracle'"):
        report_summary(ReportInputs(models=(folder,)))


def test_a_model_alone_is_worth_a_report(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "tuning" / "models" / "validity")
    code, _, err = here("report", cwd=tmp_path)
    assert code == 0, err
    assert "Failures foreseen" in (tmp_path / "tuning" / "report.html").read_text()
