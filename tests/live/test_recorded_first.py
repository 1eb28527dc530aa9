"""Nothing is tuned twice: what a dataset has is found by its loops and measured first."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from running import here

from toolkit.datasets import open_dataset

LOGGED = "matmul:32,32,32"


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with twelve recorded programs of one workload, measured on another machine."""
    folder = tmp_path_factory.mktemp("recorded")
    command = ("collect", "--workload", LOGGED, "--trials", "12", "--threads", "1")
    assert here(*command, "--machine", "theirs", "--out", folder / "logs", cwd=folder)[0] == 0
    assert here("ingest", "logs", cwd=folder)[0] == 0
    return folder


def tuned(folder: Path, *more: str) -> dict:
    command = ("tune", "--workload", LOGGED, "--threads", "1", "--finalists", "0", "--json")
    more = ("--strategy", "random", "--min-repeat-ms", "1", *more)
    code, said, err = here(*command, *more, cwd=folder)
    assert code == 0, err
    return orjson.loads(said)


def schedules(database: Path) -> list[str]:
    lines = (database / "database_tuning_record.json").read_bytes().splitlines()
    decided = [orjson.loads(line)[1][0] for line in lines]
    return [orjson.dumps(trace[1]).decode() for trace in decided]


def test_lookup_says_what_is_recorded_and_what_the_rest_costs(logged: Path) -> None:
    wanted = ("--workload", LOGGED, "--workload", "matmul:32,32,64", "--threads", "1")
    code, said, err = here("lookup", *wanted, "--json", cwd=logged)
    assert code == 0, err
    told = orjson.loads(said)
    one, other = told["tasks"]
    (found,) = one["found"]
    assert (found["machine"], found["how"], found["records"]) == ("theirs", "another machine", 12)
    assert found["workload"] == LOGGED and 0 < found["best_latency_s"] < 1
    assert other["found"] == [] and (told["covered"], told["missing"]) == (1, 1)
    assert told["seconds_to_tune_the_rest"] == pytest.approx(256 * told["seconds_a_trial"])
    code, said, _ = here("lookup", *wanted, "--machine", "theirs", cwd=logged)
    assert code == 0 and "this machine" in said and "1 of 2 tasks are recorded" in said


def test_the_same_loops_with_another_epilogue_are_told_as_such(logged: Path) -> None:
    wanted = ("--workload", "dense_bias:32,32,32", "--threads", "1", "--json")
    code, said, err = here("lookup", *wanted, cwd=logged)
    assert code == 0, err
    (task,) = orjson.loads(said)["tasks"]
    assert [found["how"] for found in task["found"]] == ["the same loops"]


def test_a_search_measures_the_best_recorded_programs_first(logged: Path) -> None:
    result = tuned(logged, "--trials", "8")
    assert result["tasks"][0]["recorded"] == 4
    candidates = open_dataset(logged / "tuning" / "dataset").candidates()
    best = candidates.drop_nulls("latency_s").sort("latency_s")["schedule"].head(4)
    known = {orjson.dumps(orjson.loads(schedule)[1]).decode() for schedule in best}
    made = schedules(logged / "tuning" / "tuned")
    assert set(made[:4]) == known and len(made) == 8

    again = tuned(logged, "--trials", "16")
    assert again["tasks"][0]["trials"] == 16
    after = schedules(logged / "tuning" / "tuned")
    assert after[:8] == made and len(set(after)) == len(after), "nothing is measured twice"


@pytest.mark.parametrize("trials", [1, 3])
def test_recorded_programs_count_as_trials(logged: Path, tmp_path: Path, trials: int) -> None:
    out = tmp_path / "few"
    (task,) = tuned(logged, "--trials", str(trials), "--out", str(out))["tasks"]
    assert (task["trials"], task["recorded"]) == (trials, max(trials - 1, 1))
    assert len(schedules(out)) == trials


def test_a_search_can_be_made_without_records(logged: Path, tmp_path: Path) -> None:
    result = tuned(logged, "--trials", "4", "--no-recorded", "--out", str(tmp_path / "alone"))
    assert result["tasks"][0]["recorded"] == 0
    # Where there is no dataset there is nothing to say.
    assert tuned(tmp_path, "--trials", "4")["tasks"][0]["recorded"] == 0


def test_lookup_without_a_dataset_says_what_to_do(tmp_path: Path) -> None:
    code, _, err = here("lookup", "--workload", LOGGED, "--threads", "1", cwd=tmp_path)
    assert code == 1 and "toolkit ingest" in err
