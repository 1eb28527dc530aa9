"""Races: S and intervals on made curves, what is refused, and one real race on this machine."""

from __future__ import annotations

import errno
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from running import here

from tests.live.burners import NOT_THE_MACHINE, slow_machine
from toolkit.errors import LiveError
from toolkit.live.confirm.rules import INCUMBENT, TWIN, trimmed_interval
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import DECIDES_NOTHING, SLOWED
from toolkit.live.race import baselines, confirm
from toolkit.live.race.confirm import CONFIRMED_FILE
from toolkit.live.race.curves import MOST, Held, as_good_from, leg_curve, reached, steps_of
from toolkit.live.race.leg import STOCK
from toolkit.live.race.quality import TOLERANCES, add_moments, add_tolerances
from toolkit.live.race.report import (
    add_quality,
    compare_legs,
    geometric_mean,
    report_race,
    sum_moments,
    sum_tolerances,
    write_report,
)
from toolkit.live.race.rules import leg_order, refuse_missing
from toolkit.live.space.programs import load_workload
from toolkit.training.trained.models import TrainedModels


def made_leg(arm: str, latencies: list[float | None], seconds: list[float], batch: int = 1) -> dict:
    rows, best = [], None
    for i, (latency, at) in enumerate(zip(latencies, seconds, strict=True)):
        best = latency if best is None else min(best, latency or math.inf)
        rows.append({"clock_s": at, "latency_s": latency, "best_s": best, "batch": i // batch})
    return {"task": "t", "seed": 0, "arm": arm, "seconds": seconds[-1], "trials": rows}


ROUNDS = 60
STOCK_LEG = made_leg(STOCK, [8.0, None, 4.0, 6.0, 2.0, 3.0], [10, 10, 20, 20, 30, 30], batch=2)


def test_s_is_the_share_of_stocks_time_and_trials() -> None:
    row = compare_legs(STOCK_LEG, made_leg("a", [5.0, 2.0, 1.0], [3.0, 6.0, 9.0]))
    assert (row["stock_reached_trials"], row["stock_reached_seconds"]) == (5, 30)
    assert row["s_trials"] == pytest.approx(2 / 5)
    assert row["s_seconds"] == pytest.approx(6 / 30)
    # Its fifth trial is the first of two in a batch from 20 s to 30 s.
    assert row["s_seconds_strict"] == pytest.approx(6 / 25)
    assert row["stock_improves_late"]


def test_what_was_not_reached_is_a_lower_bound_and_counted() -> None:
    never = made_leg("a", [5.0, 2.5], [4.0, 60.0])
    row = compare_legs(STOCK_LEG, never)
    assert row["s_seconds"] is None and row["s_trials"] is None
    assert row["at_least_seconds"] == pytest.approx(60 / 30)
    summary = report_race([STOCK_LEG, never], [], ["a"])["summary"]["a"]
    assert summary["not_reached"] == summary["legs"] == 1
    assert summary["s_seconds"]["value"] == pytest.approx(2.0)
    assert reached(never, 2.5) == (2, 60.0)


def test_steps_are_the_trials_that_lowered_the_best_from_near_stocks_on() -> None:
    leg = made_leg("a", [9.0, None, 2.5, 2.7, 2.2, 2.0, 2.1, 1.9], list(range(8)))
    assert [held.trial for held in steps_of(leg, 2.0)] == [3, 5, 6, 8]
    assert steps_of(leg, 1.0) == [Held("a, trial 8", 8, 8, 7, 1.9)]
    assert steps_of(made_leg("a", [None], [1.0]), 1.0) == []
    long = made_leg("a", [2.0 - 0.01 * i for i in range(50)], list(range(50)))
    chosen = [held.trial for held in steps_of(long, 2.0)]
    assert len(chosen) == MOST and (chosen[0], chosen[-1]) == (1, 50)
    # The one that first read as low as stock is among them.
    assert [held.trial for held in steps_of(long, 1.83)] == sorted([*chosen, 18])


def test_stocks_final_program_is_the_incumbent_and_not_one_of_its_steps_besides() -> None:
    names = [(held.name, held.read_s) for held in steps_of(STOCK_LEG, 2.0)]
    assert names == [(None, 2.0)]
    names = [(held.name, held.read_s) for held in steps_of({**STOCK_LEG, "arm": "a"}, 2.0)]
    assert names == [("a, trial 5", 2.0)]


def test_where_stock_named_its_winner_that_is_the_incumbent() -> None:
    # So does the reference of a benchmark that stands where a race has stock.
    steps = steps_of({**STOCK_LEG, "named": {"trial": 3, "clock_s": 40.0}}, 2.0)
    assert [(held.name, held.trial) for held in steps] == [("stock, trial 5", 5), (None, 3)]


def test_a_named_winner_is_held_from_when_it_was_named() -> None:
    leg = made_leg("a", [2.5, 2.0, 1.9, 2.2], [1.0, 2.0, 3.0, 4.0])

    def held(named: dict) -> list[tuple]:
        found = steps_of({**leg, "named": named}, 2.0)
        return [(each.trial, each.trials, each.clock_s, each.read_s) for each in found]

    last = held({"trial": 2, "clock_s": 9.0})
    assert last == [(1, 1, 1.0, 2.5), (2, 2, 2.0, 2.0), (3, 3, 3.0, 1.9), (2, 4, 9.0, 2.0)]
    # Where it read lowest as well, it was held all along.
    assert held({"trial": 3, "clock_s": 9.0}) == last[:3]


def test_a_program_is_as_good_from_where_all_later_ones_are() -> None:
    readings = {
        INCUMBENT: [1.0] * 8,
        TWIN: [1.0] * 8,
        # As good by luck, worse, as good, better. The odd blocks say what was not chosen by.
        "lucky": [1.0, 1.1] * 4,
        "worse": [1.05] * 8,
        "good": [1.0, 0.9] * 4,
        "final": [0.8] * 8,
    }
    found = as_good_from(["lucky", "worse", "good", "final"], readings)
    assert found is not None and found[0] == 2
    assert found[1] == pytest.approx(0.9)
    assert as_good_from(["good", "worse"], readings) is None
    assert as_good_from(["worse", None], readings) == (1, pytest.approx(1.0))
    assert as_good_from(["final"], {k: v[:1] for k, v in readings.items()}) == (0, None)


def test_s_by_quality_counts_when_stock_had_it_itself() -> None:
    row = compare_legs(STOCK_LEG, made_leg("a", [5.0, 2.5], [4.0, 60.0]))
    good = {
        STOCK: {"trial": 3, "trials": 3, "clock_s": 20.0, "ratio": 1.0},
        "a": {"trial": 1, "trials": 1, "clock_s": 4.0, "ratio": 0.99},
    }
    add_quality(row, {"as_good": good})
    assert row["quality_seconds"] == pytest.approx(4 / 20)
    assert row["quality_trials"] == pytest.approx(1 / 3)
    assert row["quality_ratio"] == 0.99
    add_quality(row, {"as_good": {**good, "a": None}})
    assert row["quality_seconds"] is None
    assert row["quality_at_least_seconds"] == pytest.approx(60 / 20)
    assert row["quality_at_least_trials"] == pytest.approx(2 / 3)


def test_a_stock_that_never_succeeded_gives_no_figure() -> None:
    row = compare_legs(made_leg(STOCK, [None], [5.0]), made_leg("a", [1.0], [1.0]))
    assert row["stock_final_s"] is None and row["s_seconds"] is None


def test_curves_are_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(tmp_path, {}, [STOCK_LEG])
    before = (tmp_path / "curves.parquet").read_bytes()

    def half(_: pl.DataFrame, path: Path) -> None:
        path.write_bytes(before[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", half)
    with pytest.raises(OSError, match="No space left"):
        write_report(tmp_path, {}, [STOCK_LEG, STOCK_LEG])
    assert (tmp_path / "curves.parquet").read_bytes() == before
    names = {"curves.json", "curves.parquet", "race.json"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_the_geometric_mean_weighs_tasks_alike_and_its_interval_holds_it() -> None:
    values = [("a", 0, 0.25), ("a", 1, 0.25), ("a", 2, 0.25), ("b", 0, 1.0)]
    found = geometric_mean(values)
    assert found is not None and found["value"] == pytest.approx(0.5)
    low, high = found["interval"]
    assert low == pytest.approx(0.25) and high == pytest.approx(1.0)
    # Six tasks and one seed: 95 % are claimed, and a plain percentile bootstrap holds 85 %.
    rng, held = np.random.default_rng(4), 0
    for _ in range(ROUNDS):
        drawn = [(str(n), 0, math.exp(rng.normal())) for n in range(6)]
        low, high = geometric_mean(drawn)["interval"]
        held += low <= 1.0 <= high
    assert 0.9 <= held / ROUNDS <= 1.0
    single = geometric_mean([("a", 0, 0.5)])
    assert single is not None and single["interval"] is None
    assert geometric_mean([]) is None


def test_no_arm_always_comes_first() -> None:
    arms = [STOCK, "a", "b"]
    firsts = {leg_order(arms, task, 0)[0] for task in range(3)}
    assert firsts == set(arms) == {leg_order(arms, 0, seed)[0] for seed in range(3)}


def test_an_arm_without_its_model_is_refused_before_anything_runs() -> None:
    with pytest.raises(LiveError, match="toolkit train throughput"):
        refuse_missing(TrainedModels(), ["random", "transfer"])
    with pytest.raises(LiveError, match="toolkit train mutation"):
        refuse_missing(TrainedModels(), ["mutation-guided"])


def test_a_race_that_never_began_binds_nobody_to_its_settings(tmp_path: Path) -> None:
    command = ("race", "--workload", "matmul:8,8,8", "--strategy", "transfer", "--threads", "1")
    for trials in (4, 5):
        code, _, err = here(*command, "--trials", trials, "--out", "r", cwd=tmp_path)
        assert code == 1 and "toolkit train throughput" in " ".join(err.split())


def test_a_leg_that_was_run_again_is_confirmed_again_with_95_percent_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [2.1, 2.02, 1.98, 2.05]
    readings = {INCUMBENT: [2.0] * 4, TWIN: [2.0] * 4, "a, trial 1": own}
    # Of three programs two do not run any more.
    gone = {f"a, trial {trial}": "compile: refused" for trial in (2, 3)}
    calls: list[confirm.Confirmation] = []

    def measured(*_: object, **__: object) -> confirm.Confirmation:
        calls.append(confirm.Confirmation({**readings, **{name: [] for name in gone}}, [], gone))
        return calls[-1]

    monkeypatch.setattr(confirm, "confirm", measured)
    ours = made_leg("a", [2.1, 2.05, 2.0], [1.0, 2.0, 3.0])
    how: dict = {"program_of": lambda *_: None, "target": "llvm", "protocol": Protocol()}
    for stock, steps in (([None], {}), ([2.0], {STOCK, "a"}), ([2.0], {STOCK, "a"})):
        # A leg whose trials all failed was removed, as the warning says, and run again.
        legs = {STOCK: made_leg(STOCK, stock, [9.0]), "a": ours}
        found = confirm.confirm_finals("t", 0, legs, tmp_path, blocks=4, step=None, **how)
        assert set(found["steps"]) == set(steps)
    assert len(calls) == 1, "what was read of these legs is kept"
    (step,) = found["steps"]["a"]
    _, low, high = trimmed_interval(np.log(np.array(own) / 2.0), 0.95)
    assert step["interval"] == pytest.approx([math.exp(low), math.exp(high)])


def test_an_unknown_baseline_is_refused_by_its_name() -> None:
    with pytest.raises(LiveError, match="stock-worm") as raised:
        refuse_missing(TrainedModels(), ["random"], ["stock-worm"])
    assert "stock-warm" in str(raised.value.cure)
    with pytest.raises(LiveError, match="throughput model"):
        refuse_missing(TrainedModels(), ["random"], ["stock-warm"])


def test_tolerances_and_moments_of_a_leg() -> None:
    confirmed = {
        "readings_s": {
            INCUMBENT: [1.0] * 4,
            TWIN: [1.0] * 4,
            f"{STOCK}, trial 1": [1.2] * 4,
            "a, trial 1": [1.04] * 4,
            "a, trial 2": [1.015] * 4,
        },
        "steps": {
            STOCK: [
                {"trial": 1, "trials": 1, "clock_s": 20.0, "ratio": 1.2},
                {"trial": 64, "trials": 64, "clock_s": 100.0, "ratio": 1.0},
            ],
            "a": [
                {"trial": 1, "trials": 1, "clock_s": 8.0, "ratio": 1.04},
                {"trial": 2, "trials": 2, "clock_s": 40.0, "ratio": 1.015},
            ],
        },
    }
    row = {"task": "t", "seed": 0, "arm": "a", "seconds": 50.0, "trials": 10}
    add_tolerances(row, confirmed)
    found = {one["tolerance"]: one for one in row["by_tolerance"]}
    assert [found[t]["reached"] for t in TOLERANCES] == [False, False, True, True]
    assert found[0.01]["seconds"] == pytest.approx(50 / 100)
    assert found[0.02]["seconds"] == pytest.approx(40 / 100)
    assert found[0.05]["trials"] == pytest.approx(1 / 64)
    add_moments(row, confirmed)
    held = {one["seconds"]: (one["ratio"], one["stock_ratio"]) for one in row["by_moment"]}
    assert held[10.0] == (1.04, None) and held[30.0] == (1.04, 1.2) and held[120.0] == (1.015, 1.0)
    (_, _, third, _) = sum_tolerances([row])
    assert third["reached"] == third["legs"] == 1
    assert third["seconds"]["value"] == pytest.approx(0.4)
    assert sum_moments([row])[0]["stock_held"] == 0


# TVM's tuner evolves thousands of programs, however few it then measures. With two loops it takes
# half as long over each as over those of a product of two matrices.
PRODUCT = """
from tvm import te

def product():
    a, x = te.placeholder((32, 32), name="a"), te.placeholder((32,), name="x")
    k = te.reduce_axis((0, 32), name="k")
    return [a, x, te.compute((32,), lambda i: te.sum(a[i, k] * x[k], axis=k), name="y")]

WORKLOADS = {"product": product}
"""

COMMAND = (
    *("race", "--seeds", "1", "--strategy", "random", "--seed", "3"),
    # TVM's own workers need long to start on a machine that is busy with other tests.
    *("--threads", "1", "--stock-build-timeout", "240"),
    *("--min-repeat-ms", "20"),
)


def race_command(out: Path, trials: int = 4) -> tuple:
    """The race of this folder, which holds its workload."""
    return (*COMMAND, "--workload", out / "product.py", "--trials", trials, "--out", out, "--json")


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Legs that were raced and not confirmed."""
    out = tmp_path_factory.mktemp("legs")
    (out / "product.py").write_text(PRODUCT)
    code, said, err = here(*race_command(out), "--blocks", "0", cwd=out)
    assert code == 0, err
    assert orjson.loads(said)["confirmed"] == []
    return out


@pytest.fixture
def raced(legs: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(legs, tmp_path / "race"))


def written(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("leg.json")}


def confirmed_here(out: Path, blocks: int) -> tuple[int, str]:
    code, said, err = here(*race_command(out), "--blocks", blocks, cwd=out)
    assert code in (0, 4), err
    return code, said


def test_what_stock_had_the_time_to_build_is_built_again(
    raced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits_s = []

    def finals(*_: object, protocol: Protocol, **__: object) -> None:
        limits_s.append(protocol.build_timeout_s)
        raise LiveError("seen")

    monkeypatch.setattr("toolkit.live.race.race.confirm_finals", finals)
    code, _, err = here(*race_command(raced), "--blocks", 2, cwd=raced)
    assert code == 1 and "seen" in err and limits_s == [240.0]


def test_a_race_runs_its_legs_once_and_confirms_the_finals(raced: Path) -> None:
    before = written(raced)
    # What a machine that others keep busy leaves undecided is read anew.
    code, said = next(found for _ in range(4) if not (found := confirmed_here(raced, 2))[0])
    result = orjson.loads(said)
    (row,) = result["rows"]
    assert row["arm"] == "random" and row["seed"] == 3 and row["stock_trials"] == row["trials"] == 4
    assert row["s_seconds"] is not None or row["at_least_seconds"] > 0
    (confirmed,) = result["confirmed"]
    assert confirmed["finals"]["random"]["ratio"] > 0
    (*_, last) = confirmed["steps"]["random"]
    assert last["ratio"] == confirmed["finals"]["random"]["ratio"]
    assert confirmed["as_good"][STOCK]["trial"] <= row["stock_reached_trials"]
    assert (row["quality_seconds"] is None) == (confirmed["as_good"]["random"] is None)
    assert {len(values) for values in confirmed["readings_s"].values()} == {2}
    assert confirmed["slowed_by"] > 0 and not confirmed["undecided"]
    (folder,) = raced.glob(f"legs/*/seed-3/{CONFIRMED_FILE}")
    told = [warning for warning in result["warnings"] if str(folder) in warning]
    assert len(told) == (confirmed["slowed_by"] > SLOWED)
    curves = pl.read_parquet(raced / "curves.parquet")
    assert curves.group_by("arm").len().sort("arm")["len"].to_list() == [4, 4]
    assert orjson.loads((raced / "race.json").read_bytes())["rows"] == result["rows"]

    gone = subprocess.Popen(["true"])
    gone.wait()
    half = folder.with_name(f".{CONFIRMED_FILE}.{gone.pid}.tmp")
    half.write_bytes(b"a killed race left this")
    again = orjson.loads(confirmed_here(raced, 2)[1])
    assert again["rows"] == result["rows"] and again["confirmed"] == result["confirmed"]
    assert written(raced) == before, "no leg was run again"
    assert not half.exists()
    code, _, err = here(*race_command(raced, trials=5), cwd=raced)
    assert code == 1 and "trials" in err


def test_a_baseline_is_an_arm_beside_stock(raced: Path) -> None:
    before = written(raced)
    command = (*race_command(raced), "--blocks", "0")
    code, said, err = here(*command, "--baseline", "stock-small-batches", cwd=raced)
    assert code == 0, err
    result = orjson.loads(said)
    assert list(result["summary"]) == ["stock-small-batches", "random"]
    rows = {row["arm"]: row for row in result["rows"]}
    assert set(rows) == set(result["summary"])
    assert rows["stock-small-batches"]["trials"] == 4
    assert rows["stock-small-batches"]["stock_final_s"] == rows["random"]["stock_final_s"]
    after = written(raced)
    assert len(after) == 3 and before.items() <= after.items(), "an arm was added, none run again"


def test_the_best_of_tvms_tuner_are_read_again(
    raced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = raced.glob(f"legs/*/seed-3/{STOCK}")
    spec = orjson.loads((folder / "spec.json").read_bytes())
    assert leg_curve(folder, "t", 3, "stock-finalists")["named"] is None
    monkeypatch.setattr(baselines, "NEAR", math.inf)
    given = {**spec["protocol"], "cores": tuple(spec["protocol"]["cores"])}
    baselines.read_again(
        load_workload(spec["workload"]), folder, 3, spec["target"], Protocol(**given), 0.0
    )
    leg = leg_curve(folder, "t", 3, "stock-finalists")
    read = sorted((row["latency_s"], n) for n, row in enumerate(leg["trials"], start=1))
    assert leg["named"]["trial"] in [number for _, number in read[:3]]
    # It is held from when it was named, unless it was all along.
    last = steps_of(leg, read[0][0])[-1]
    assert last.trial == leg["named"]["trial"]


def test_legs_of_another_workload_by_the_same_name_are_not_taken(raced: Path) -> None:
    (raced / "product.py").write_text(PRODUCT.replace("32", "64"))
    code, _, err = here(*race_command(raced), "--blocks", "0", cwd=raced)
    assert code == 1 and "another workload was called product" in " ".join(err.split())


def test_a_race_on_a_slow_machine_is_undecided_and_then_read_anew(raced: Path) -> None:
    with slow_machine():
        code, said = confirmed_here(raced, 2)
    assert code == 4, said
    (confirmed,) = orjson.loads(said)["confirmed"]
    assert confirmed["slowed_by"] >= DECIDES_NOTHING
    assert confirmed["undecided"].startswith(NOT_THE_MACHINE)
    assert confirmed["finals"] == confirmed["steps"] == confirmed["as_good"] == {}
    result = orjson.loads((raced / "race.json").read_bytes())
    assert result["summary"]["random"]["undecided"] == 1
    assert result["summary"]["random"]["final_ratio"] is None
    assert any(NOT_THE_MACHINE in warning for warning in result["warnings"])

    before = (confirmed["readings_s"], written(raced))
    code, said = confirmed_here(raced, 2)
    (confirmed,) = orjson.loads(said)["confirmed"]
    assert confirmed["readings_s"] != before[0] and written(raced) == before[1]
    assert code == (4 if confirmed["undecided"] else 0)
    assert (confirmed["finals"] == {}) == bool(confirmed["undecided"])
    *told, _as_json = race_command(raced)
    code, said, _ = here(*told, "--blocks", "2", cwd=raced)
    assert ("undecided" in said) == (code == 4)
