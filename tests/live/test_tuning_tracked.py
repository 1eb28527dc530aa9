"""A search that MLflow is told of: watched while it runs, interrupted, and gone on with."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from running import here, until

from toolkit.reports import tracking

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

COMMAND = (
    *("tune", "--workload", "matmul:8,12,16", "--strategy", "random", "--threads", "1"),
    *("--min-repeat-ms", "1", "--finalists", "0", "--round-size", "4"),
    *("--out", "tuned", "--mlflow", "runs"),
)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Whoever runs the tests in the background ignores interrupts, and so would this."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_search_is_killed_and_goes_on_as_the_same_run(
    tmp_path: Path, interrupts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    monkeypatch.setattr(tracking, "SEND_S", 0.1)
    seen: list[str] = []

    def run_of() -> Any:
        database = tmp_path / "runs" / "mlflow.db"
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
        experiment = client.get_experiment_by_name("tvm-tuning-toolkit")
        (run,) = client.search_runs([experiment.experiment_id])
        return client, run

    def watch() -> None:
        """Press Ctrl-C when MLflow shows a trial of the search that goes on."""
        if until(lambda: (tmp_path / "tuned" / ".mlflow.json").is_file(), 90.0):
            until(lambda: "trials" in run_of()[1].data.metrics)
            seen.append(run_of()[1].info.status)
        _thread.interrupt_main()

    watcher = threading.Thread(target=watch)
    watcher.start()
    code, _, said = here(*COMMAND, "--trials", "5000", cwd=tmp_path)
    watcher.join()
    assert (code, seen) == (130, ["RUNNING"]), said
    assert run_of()[1].info.status == "KILLED"
    before = len((tmp_path / "tuned" / "database_trials.jsonl").read_bytes().splitlines())

    trials = str(before + 4)
    code, out, said = here(*COMMAND, "--trials", trials, "--json", cwd=tmp_path)
    assert code == 0, said
    (client, run), result = run_of(), orjson.loads(out)
    assert run.info.status == "FINISHED"
    assert run.data.params["trials"] == "5000" and run.data.tags["now.trials"] == trials
    (row,) = result["tasks"]
    key = "best_latency_s/matmul_8_12_16"
    assert run.data.metrics[f"result/{key}"] == row["best_latency_s"]
    assert run.data.metrics["result/weighted_latency_s"] == result["weighted_latency_s"]
    told = client.get_metric_history(run.info.run_id, "trials")
    assert [point.step for point in told] == list(range(1, result["trials"] + 1))
    best = [point.value for point in client.get_metric_history(run.info.run_id, key)]
    assert best == sorted(best, reverse=True)
    about = orjson.loads((tmp_path / "tuned" / "collection.json").read_bytes())
    assert run.data.tags["machine"] == about["machine"]
    assert run.data.tags["machine_fingerprint"] == about["machine_fingerprint"]["id"]
    kept = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert kept == {"tune.json", "tuned.json", "collection.json", "summary.json"}
