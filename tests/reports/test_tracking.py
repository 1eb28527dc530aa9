"""MLflow is told of runs: of a local store, of one that goes away, and of none."""

from __future__ import annotations

import http.server
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from made_commands import QUICK, json_of, made_workplace
from running import until
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import open_dataset
from toolkit.errors import ToolkitError
from toolkit.progress import Silent, Step
from toolkit.reports.tracking_names import clean, figures, flat
from toolkit.training import load_recipe, train_throughput
from toolkit.workspace import RUN_FILE

# SQLAlchemy warns of what MLflow does with it.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables without an experiment of ours: making them takes seconds."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    file: Path = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def client_of(tmp_path: Path, empty_store: Path) -> Any:
    """Open a folder's store by MLflow's own client."""
    import mlflow

    (tmp_path / "runs").mkdir()
    for folder in (tmp_path, tmp_path / "runs"):
        shutil.copy(empty_store, folder / "mlflow.db")
    return lambda folder: mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return made_workplace(tmp_path)


def runs_of(client: Any, name: str = "tvm-tuning-toolkit") -> list[Any]:
    experiment = client.get_experiment_by_name(name)
    return list(client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"]))


def test_names_and_figures_are_as_mlflow_takes_them() -> None:
    assert clean("best_latency_s/matmul:8,12//16/") == "best_latency_s/matmul_8_12/16"
    assert flat({"models": [{"rounds": 3}], "none": None, "cores": [1, 2]}) == {
        "models.0.rounds": 3,
        "cores": [1, 2],
    }
    found = figures({"top1": 0.5, "top1_interval": [0.4, 0.6], "ok": True, "tasks": [{"a": 1}],
                     "levels": {"tile": {"accuracy": 1}}})  # fmt: skip
    assert found == {
        "top1": 0.5,
        "top1_interval/low": 0.4,
        "top1_interval/high": 0.6,
        "levels/tile/accuracy": 1.0,
    }


def test_a_training_is_a_run_with_its_manifest(workplace: Path, client_of: Any) -> None:
    command = ["train", "throughput", "--recipe", "quick.toml", "--mlflow", "runs"]
    trained = json_of(*command)
    client = client_of(workplace / "runs")
    (run,) = runs_of(client)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["top1"] == trained["top1"]
    assert run.data.metrics["top1_interval/low"] == trained["top1_interval"][0]
    assert run.data.metrics["baseline_constant/top1"] == trained["baseline_constant"]["top1"]
    assert run.data.params["recipe.models.0.rounds"] == "30"
    manifest = orjson.loads(Path("tuning/models/throughput/manifest.json").read_bytes())
    assert run.data.tags["dataset_fingerprint"] == manifest["dataset"]["fingerprint"]
    assert run.data.tags["version.lightgbm"] == manifest["versions"]["lightgbm"]
    folds = client.get_metric_history(run.info.run_id, "fold/top1")
    assert sorted(point.step for point in folds) == sorted(set(manifest["folds"].values()))
    rows = {row["task_id"]: row["top1"] for row in trained["tasks"]}
    first = [rows[task] for task, fold in manifest["folds"].items() if fold == 0 and task in rows]
    assert folds[0].step == 0
    assert folds[0].value == pytest.approx(sum(first) / len(first))
    artifacts = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert artifacts == {"manifest.json", "summary.json"}
    kept = next((workplace / "runs" / "artifacts").rglob("summary.json"))
    assert orjson.loads(kept.read_bytes()) == trained
    assert not Path("tuning/models/throughput", RUN_FILE).exists(), "the next is another run"


def test_the_environment_names_store_and_experiment(
    workplace: Path, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workplace / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ours")
    recipe = QUICK.replace('"throughput"', '"mutation"')
    (workplace / "gains.toml").write_text(recipe)
    trained = json_of("train", "mutation", "--recipe", "gains.toml", "--mlflow", "env")
    (run,) = runs_of(client_of(workplace), "ours")
    assert run.data.metrics["gain_share"] == trained["gain_share"]


def test_an_interrupted_training_is_killed_and_goes_on_as_the_same_run(
    workplace: Path, client_of: Any
) -> None:
    from toolkit.reports.tracked import track_training

    class Impatient(Silent):
        """Presses Ctrl-C when models are fitted."""

        @contextmanager
        def step(self, label: str, total: float | None = None) -> Iterator[Step]:
            if label == "training":
                raise KeyboardInterrupt
            with super().step(label, total) as step:
                yield step

    dataset, recipe = open_dataset("tuning/dataset"), load_recipe("quick.toml")
    out = Path("tuning/models/throughput")
    with (
        pytest.raises(KeyboardInterrupt),
        track_training(dataset, recipe, out, place="runs", progress=Impatient()) as run,
    ):
        train_throughput(dataset, recipe, out, progress=run.progress)
    client = client_of(workplace / "runs")
    assert [run.info.status for run in runs_of(client)] == ["KILLED"]
    json_of("train", "throughput", "--recipe", "quick.toml", "--mlflow", "runs")
    assert [run.info.status for run in runs_of(client)] == ["FINISHED"]


def test_a_server_that_is_not_there_is_told_before_any_work(workplace: Path) -> None:
    pytest.importorskip("mlflow")
    place = "http://127.0.0.1:9"
    done = CliRunner().invoke(
        app, ["train", "throughput", "--recipe", "quick.toml", "--mlflow", place]
    )
    said = " ".join(done.stderr.split())
    assert done.exit_code == 1
    assert "no server answers" in said and "mlflow server" in said
    assert not Path("tuning/models").exists()


def test_without_mlflow_the_cure_is_named(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = CliRunner().invoke(
        app, ["train", "throughput", "--recipe", "quick.toml", "--mlflow", "runs"]
    )
    assert done.exit_code == 1
    assert "tvm-tuning-toolkit[mlflow]" in " ".join(done.stderr.split())
    assert not Path("runs").exists() and not Path("tuning/models").exists()


def test_an_unset_environment_is_named(workplace: Path) -> None:
    done = CliRunner().invoke(
        app, ["train", "throughput", "--recipe", "quick.toml", "--mlflow", "env"]
    )
    assert done.exit_code == 1 and "MLFLOW_TRACKING_URI" in done.stderr


class _Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_store_that_goes_away_is_said_once_and_the_work_goes_on(
    tmp_path: Path, client_of: Any
) -> None:
    from toolkit.reports.tracking import mlflow_run

    heard = _Heard()
    place = tmp_path / "runs"
    with mlflow_run(tmp_path / "out", name="work", place=place, progress=heard) as run:
        store = run._store
        with run.progress.step("search", 3) as step:
            step.advance(values={"best_s": 2.0})
            assert until(lambda: run.run_id and not run._points)
            (place / "mlflow.db").rename(place / "away.db")
            (place / "mlflow.db").mkdir()
            store.client._tracking_client.store.engine.dispose()
            for best_s in (1.0, 0.5):
                step.advance(values={"best_s": best_s})
            run.result({"best_s": 0.5, "tasks": []})
    assert [text.partition(":")[0] for text in heard.said] == [
        "MLflow fails, the work goes on without it",
        "MLflow does not have all of this run",
    ]


def test_a_store_that_comes_back_gets_all_figures(
    tmp_path: Path, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkit.reports import tracking

    monkeypatch.setattr(tracking, "SEND_S", 0.05)
    heard, database = _Heard(), tmp_path / "runs" / "mlflow.db"
    where: Any = {"name": "work", "place": tmp_path / "runs", "progress": heard}
    with tracking.mlflow_run(tmp_path / "out", **where) as run, run.progress.step("search") as step:
        step.advance(values={"best_s": 2.0})
        assert until(lambda: run.run_id and not run._points)
        database.rename(tmp_path / "away.db")
        database.mkdir()
        run._store.client._tracking_client.store.engine.dispose()
        step.advance(values={"best_s": 1.0})
        assert until(lambda: run._trouble)
        step.advance(values={"best_s": 0.5})
        database.rmdir()
        (tmp_path / "away.db").rename(database)
        assert until(lambda: not run._points)
    (found,) = runs_of(client_of(tmp_path / "runs"))
    assert found.info.status == "FINISHED"
    history = client_of(tmp_path / "runs").get_metric_history(run.run_id, "best_s")
    assert [point.value for point in history] == [2.0, 1.0, 0.5]
    assert [text.partition(":")[0] for text in heard.said] == [
        "MLflow fails, the work goes on without it",
        "MLflow",
    ]


def test_a_failure_is_marked_and_a_resumed_run_has_no_figure_twice(
    tmp_path: Path, client_of: Any
) -> None:
    from toolkit.reports.tracking import mlflow_run

    def work(trials: int, fails: bool) -> None:
        where: Any = {"name": "work", "place": tmp_path / "runs", "params": {"trials": trials}}
        with mlflow_run(tmp_path / "out", **where) as run, run.progress.step("search") as step:
            for trial in range(1, trials + 1):
                step.advance(values={"trials": trial})
            if fails:
                raise ToolkitError("broken")

    with pytest.raises(ToolkitError, match="broken"):
        work(3, True)
    client = client_of(tmp_path / "runs")
    assert [run.info.status for run in runs_of(client)] == ["FAILED"]
    work(5, False)
    (run,) = runs_of(client)
    assert run.info.status == "FINISHED"
    points = client.get_metric_history(run.info.run_id, "trials")
    assert sorted(point.step for point in points) == [1, 2, 3, 4, 5]
    assert run.data.params["trials"] == "3" and run.data.tags["now.trials"] == "5"


def test_a_server_that_is_silent_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and says nothing, as a wrong port may."""
    pytest.importorskip("mlflow")
    from toolkit.reports import tracking_store

    monkeypatch.setattr(tracking_store, "ANSWER_S", 0.2)
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    try:
        with pytest.raises(ToolkitError, match="no server answers"):
            tracking_store.open_store(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.server_close()


def test_the_documented_example_runs(workplace: Path, client_of: Any) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "mlflow.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    exec(compile(block, page.name, "exec"), {})
    (run,) = runs_of(client_of(workplace / "runs"))
    assert run.info.status == "FINISHED" and "top1" in run.data.metrics
