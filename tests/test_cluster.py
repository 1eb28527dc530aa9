"""On Dask's workers work ends with the bytes that one process gives, also where one is lost."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import mul
from pathlib import Path

import distributed
import pytest
from made_autotvm import write_autotvm
from typer.testing import CliRunner

from toolkit import cluster as clusters
from toolkit.cli.main import app
from toolkit.cluster import Cluster
from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import ToolkitError
from toolkit.features import extract, extractor_named
from toolkit.progress import Silent, Step
from toolkit.replay import parse_scenario, simulate
from toolkit.training import train_mutation, train_throughput
from toolkit.training.recipes.recipe import DataOptions, ModelOptions, Recipe, SplitOptions

FILES = ("runs.parquet", "results.parquet", "summary.json")
SCENARIO = {
    "name": "few",
    "tasks": {"minimum_candidates": 10},
    "strategy": [{"name": "random"}, {"name": "grid"}, {"name": "genetic"}],
    "budget": {"evaluations": 64},
    "network": {"round_size": 5, "rounds_per_task": 4},
    "seeds": 2,
    "resamples": 100,
}

FEW = """
seeds = 1
resamples = 100
[[strategy]]
name = "random"
[[strategy]]
name = "grid"
[budget]
evaluations = 64
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("made")
    write_autotvm(folder / "log.json", occasions=2, noise=0.01, failing=0.02)
    ingest([folder / "log.json"], folder / "dataset")
    return open_dataset(folder / "dataset")


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    with Cluster("local:2") as cluster:
        yield cluster


class KillsAWorker(Silent):
    """Kills a worker when the first piece is done."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.killed = cluster, 0

    @contextmanager
    def step(self, label: str, total: float | None = None) -> Iterator[Step]:
        yield self

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
        if by and not self.killed:
            self.killed = min(self.cluster._client.run(os.getpid).values())
            os.kill(self.killed, signal.SIGKILL)


def test_a_cluster_replays_to_the_same_bytes(
    two: Cluster, dataset: Dataset, tmp_path: Path
) -> None:
    for name, workers in (("one", 1), ("cluster", two)):
        simulate(dataset, parse_scenario(SCENARIO), out=tmp_path / name, workers=workers)
    for file in FILES:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "cluster" / file).read_bytes()
    assert two.workers == 2


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_worker_that_is_killed_midway_costs_nothing(dataset: Dataset, tmp_path: Path) -> None:
    simulate(dataset, parse_scenario(SCENARIO), out=tmp_path / "whole")
    with Cluster("local:2") as cluster:
        progress = KillsAWorker(cluster)
        simulate(
            dataset,
            parse_scenario(SCENARIO),
            out=tmp_path / "cut",
            workers=cluster,
            progress=progress,
        )
    assert progress.killed
    for file in FILES:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_more_pieces_than_workers_hold_outlive_a_worker() -> None:
    with Cluster("local:2") as cluster:
        killing, answers = KillsAWorker(cluster), {}
        for piece, answer in cluster.results(mul, 3, range(40)):
            answers[piece] = answer
            killing.advance()
    assert killing.killed and answers == {piece: 3 * piece for piece in range(40)}


def _after(_: None, seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_scheduler_that_is_lost_is_said(streamed: bool) -> None:
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
    ) as local:
        cluster = Cluster(local.scheduler_address)
        if streamed:
            answers = cluster.results(_after, None, [0.0, 0.5, 0.5])
            next(answers)
        else:
            waiting = [cluster.submit(_after, None, 0.5) for _ in range(2)]
        local.close()
        with pytest.raises(ToolkitError, match="the cluster's scheduler ended"):
            list(answers) if streamed else [one.result(timeout=20) for one in waiting]
        cluster.__exit__()


@pytest.mark.parametrize("kind", ["throughput", "mutation"])
def test_members_that_a_cluster_fits_are_those_of_one_process(
    kind: str, two: Cluster, dataset: Dataset, tmp_path: Path
) -> None:
    model = ModelOptions(library="lightgbm", rounds=5, params={"num_leaves": 7})
    recipe = Recipe(
        kind=kind,
        models=(model,),
        data=DataOptions(min_records=20, judged_records=50),
        split=SplitOptions(folds=3),
    )
    train = {"throughput": train_throughput, "mutation": train_mutation}[kind]
    found = [
        train(dataset, recipe, tmp_path / name, threads=threads)
        for name, threads in (("one", 1), ("cluster", two))
    ]
    one, other = ({**result.to_json(), "out": "", "seconds": 0} for result in found)
    assert one == other


def test_a_cluster_reads_logs_and_makes_features_as_one_process_does(
    two: Cluster, dataset: Dataset, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    for number in range(3):
        write_autotvm(logs / f"{number}.json", occasions=number + 1, noise=0.01)
    found = []
    for name, workers, cluster in (("one", 0, None), ("cluster", two, two)):
        folder = tmp_path / name / "dataset"
        report = ingest(logs, folder, workers=workers)
        opened = open_dataset(folder)
        told = extract(opened, extractor_named("knobs"), cluster=cluster)
        assert told["groups"] and report.records == opened.records().collect().height
        parts = sorted(path for path in folder.rglob("*.parquet"))
        found.append([(path.relative_to(folder), path.read_bytes()) for path in parts])
    assert found[0] == found[1]


def test_what_does_not_fit_is_refused(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    address = two._client.scheduler.address
    with Cluster(address) as same:
        assert same.workers == 2
    monkeypatch.setattr(clusters, "__version__", "9.9")
    with pytest.raises(ToolkitError, match="have the toolkit in version"):
        Cluster(address)
    monkeypatch.undo()
    monkeypatch.setattr(clusters, "ANSWER_S", 1.0)
    with pytest.raises(ToolkitError, match=r"no Dask cluster answers at 'tcp://127\.0\.0\.1:1'"):
        Cluster("tcp://127.0.0.1:1")
    with pytest.raises(ToolkitError, match="no Dask cluster answers at 'nonsense'"):
        Cluster("nonsense")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as threaded,
        pytest.raises(ToolkitError, match="several threads each"),
    ):
        Cluster(threaded.scheduler_address)


def test_without_dask_the_cure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ToolkitError, match="is not installed") as refused:
        Cluster("local:1")
    assert "[cluster]" in str(refused.value.cure)


def test_features_that_nobody_can_compute_are_not_asked_of_a_cluster(
    two: Cluster, dataset: Dataset
) -> None:
    stored = extractor_named("stored:elsewhere")
    assert extract(dataset, stored, cluster=two) == extract(dataset, stored)


def test_the_command_takes_a_cluster_or_a_number(dataset: Dataset, tmp_path: Path) -> None:
    given = ["simulate", "--dataset", str(dataset.path), "--out", str(tmp_path / "out")]
    run = CliRunner().invoke(app, [*given, "--cluster", "local:2", "--workers", "2"])
    said = " ".join(run.output.replace("│", " ").split())
    assert run.exit_code == 2 and "a cluster has its own number of workers" in said
    few = tmp_path / "few.toml"
    few.write_text(FEW)
    done = CliRunner().invoke(app, [*given, "--scenario", str(few), "--cluster", "local:2"])
    assert done.exit_code == 0, done.output
    assert "Dask's dashboard: http://" in done.output
    assert (tmp_path / "out" / "summary.json").is_file()
