"""Kernel Tuner itself replays what was exported (left out where it is not installed)."""

from __future__ import annotations

import json
from pathlib import Path

import loglines
import pytest

from toolkit.datasets import export, ingest, open_dataset

kernel_tuner = pytest.importorskip("kernel_tuner")

# Kernel Tuner expects knobs that are called block_size_x; those of other tuners are not.
pytestmark = pytest.mark.filterwarnings("ignore:None of the tunable parameters:UserWarning")


@pytest.fixture
def dataset(tmp_path):
    logs = tmp_path / "logs"
    for n, (y, x, k) in enumerate((y, x, k) for y in (1, 2, 4) for x in (1, 8) for k in (2, 4)):
        failed = (y, x) == (4, 8)
        line = loglines.autotvm(
            index=n,
            tiles=(y, x, k),
            timestamp=float(n),
            costs=[1e9] if failed else [1e-4 * (y + x), 1e-4 * k],
            error=(2, 4)[n % 2] if failed else 0,
        )
        with (loglines.write(logs / "a.log", end=b"") if not n else logs / "a.log").open("ab") as f:
            f.write(loglines.dump(line) + b"\n")
    tiles = [(1, 2, 4), (2, 1, 4), (4, 4, 2)]
    loglines.write(logs / "b.json", *(loglines.ansor(loglines.ansor_steps(tile=t)) for t in tiles))
    loglines.write(logs / "db" / "database_workload.json", loglines.workload())
    loglines.write(logs / "db" / "database_tuning_record.json", loglines.metaschedule())
    ingest(logs, tmp_path / "ds", machine="box")
    return open_dataset(tmp_path / "ds")


def simulated(path: str, strategy: str, **options):
    """Replay a cache by Kernel Tuner's simulation mode; give its results and its document."""
    document = json.loads(Path(path).read_text())
    names = document["tune_params_keys"]
    recorded = set(document["cache"])

    def was_recorded(entry) -> bool:  # a named function: Kernel Tuner rewrites lambdas
        return ",".join(str(entry[name]) for name in names) in recorded

    results, _ = kernel_tuner.tune_kernel(
        document["kernel_name"],
        "float kernel();",
        document["problem_size"],
        [],
        document["tune_params"],
        # A log that is not an enumeration holds a part of the product of its parameters.
        restrictions=was_recorded,
        lang="C",
        simulation_mode=True,
        cache=path,
        strategy=strategy,
        quiet=True,
        **options,
    )
    return results, document


def test_simulation_mode_replays_every_exported_cache(dataset, tmp_path):
    report = export(dataset, tmp_path / "out", "kernel-tuner")
    formats = 0
    for path in report["files"]:
        results, document = simulated(path, "brute_force")
        names = document["tune_params_keys"]
        found = {",".join(str(entry[name]) for name in names): entry for entry in results}
        assert set(found) == set(document["cache"])
        for key, entry in document["cache"].items():
            if isinstance(entry["time"], str):
                assert found[key]["__error__"] or found[key]["time"] == entry["time"]
            else:
                assert found[key]["time"] == entry["time"]
        formats += 1
    assert formats == 3


def test_a_search_strategy_finds_the_best_of_an_enumeration(dataset, tmp_path):
    report = export(dataset, tmp_path / "out", "kernel-tuner", where="format = 'autotvm'")
    (path,) = report["files"]
    results, _ = simulated(path, "random_sample", strategy_options={"fraction": 1.0})
    times = [entry["time"] for entry in results if isinstance(entry["time"], float)]
    good = dataset.records().collect()
    good = good.filter(good["format"] == "autotvm")["latency_s"]
    assert min(times) == pytest.approx(1e3 * good.min())


def test_what_it_read_and_wrote_is_read_again(dataset, tmp_path):
    report = export(dataset, tmp_path / "out", "kernel-tuner", where="format = 'autotvm'")
    simulated(report["files"][0], "brute_force")
    again = ingest(report["files"], tmp_path / "again")
    assert (again.records, again.rejected) == (12, 0)
