"""Collection: a database that TVM opens, all mutations, whole spaces, and going on after a stop."""

from __future__ import annotations

import resource
import shutil
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from running import here
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload

from tests.live.conftest import PROTOCOL
from toolkit.datasets import ingest, open_dataset
from toolkit.errors import LiveError
from toolkit.live.measure.program import MeasureResult
from toolkit.live.space.choices import choices
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.collect import Plan, collect
from toolkit.live.workloads.drawn import draw_workloads
from toolkit.live.workloads.named import Workload, as_module, parse_workload
from toolkit.records import TrialState
from toolkit.workspace import folder_name


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, workload: Workload, target: str) -> Path:
    out = tmp_path_factory.mktemp("collected")
    plan = Plan(trials=6, mutated=2, seed=3)
    collect([workload], out, target=target, protocol=PROTOCOL, plan=plan, machine="bench")
    return out / folder_name(workload.name)


def _lines(path: Path) -> list:
    return [orjson.loads(line) for line in path.read_text().splitlines()]


def test_tvm_opens_what_was_written(collected: Path) -> None:
    database = ms.database.JSONDatabase(work_dir=str(collected))
    records = _lines(collected / "database_tuning_record.json")
    assert len(database) == len(records) > 6
    best = min(sum(r[1][1]) / len(r[1][1]) for r in records)
    module = records and database.get_all_tuning_records()[0].workload.mod
    top = database.get_top_k(database.commit_workload(module), 1)[0]
    assert sum(float(s) for s in top.run_secs) / len(top.run_secs) == pytest.approx(best)


def test_every_record_has_its_line_beside_it(collected: Path) -> None:
    trials = _lines(collected / "database_trials.jsonl")
    assert len(trials) == len(_lines(collected / "database_tuning_record.json"))
    for trial in trials:
        assert trial["state"] == "ok" and trial["elapsed_s"] > 0 and trial["timestamp"] > 1.7e9
    times = [trial["timestamp"] for trial in trials]
    assert times == sorted(times)


def test_two_candidates_were_mutated_in_every_direction(collected: Path) -> None:
    records = _lines(collected / "database_tuning_record.json")
    trials = _lines(collected / "database_trials.jsonl")
    parents = {trial["parent"] for trial in trials if trial["parent"] is not None}
    assert len(parents) == 2
    for record, trial in zip(records, trials, strict=True):
        if trial["parent"] is None:
            continue
        before = {c.position: c.value for c in choices(records[trial["parent"]][1][0])}
        after = {c.position: c.value for c in choices(record[1][0])}
        (changed,) = [p for p in before if before[p] != after[p]]
        assert trial["direction"].endswith(f":{changed}")


def test_the_fastest_are_mutated_generation_after_generation(
    workload: Workload, target: str, tmp_path: Path
) -> None:
    plan = Plan(trials=5, occasions=2, refined=(1, 2), seed=4)

    def go(occasions: int = 2) -> None:
        wanted = replace(plan, occasions=occasions)
        collect([workload], tmp_path, target=target, protocol=PROTOCOL, plan=wanted, machine="b")

    go()
    folder = tmp_path / folder_name(workload.name)
    records = _lines(folder / "database_tuning_record.json")
    trials = _lines(folder / "database_trials.jsonl")
    keys = [orjson.dumps(choices_of(record)) for record in records]
    assert len(keys) == 2 * len(set(keys)) == 2 * sum(t["occasion"] == 0 for t in trials)
    seconds = [sum(record[1][1]) / len(record[1][1]) for record in records]
    first, *others = dict.fromkeys(t["parent"] for t in trials if t["parent"] is not None)

    def fastest(before: int) -> list[int]:
        known = [n for n in range(before) if trials[n]["occasion"] == 0]
        return sorted(known, key=seconds.__getitem__)

    assert first == fastest(plan.trials)[0]
    begin = min(n for n, trial in enumerate(trials) if trial["parent"] in others)
    assert others and set(others) <= set([n for n in fastest(begin) if n != first][:2])
    content = (folder / "database_tuning_record.json").read_bytes()
    go()
    assert (folder / "database_tuning_record.json").read_bytes() == content
    # One occasion more: the same programs once more, and no others.
    go(3)
    again = [orjson.dumps(choices_of(r)) for r in _lines(folder / "database_tuning_record.json")]
    assert again[: len(keys)] == keys and set(again[len(keys) :]) == set(keys)
    assert len(again) == len(keys) * 3 // 2


def test_the_same_command_again_measures_nothing(
    collected: Path, workload: Workload, target: str
) -> None:
    before = (collected / "database_tuning_record.json").read_bytes()
    plan = Plan(trials=6, mutated=2, seed=3)
    collect(
        [workload], collected.parent, target=target, protocol=PROTOCOL, plan=plan, machine="bench"
    )
    assert (collected / "database_tuning_record.json").read_bytes() == before


def test_a_log_that_was_cut_is_finished(
    collected: Path, workload: Workload, target: str, tmp_path: Path
) -> None:
    whole = (collected / "database_tuning_record.json").read_text().splitlines()
    copy = tmp_path / collected.name
    copy.mkdir()
    for path in collected.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    trials = (copy / "database_trials.jsonl").read_text().splitlines()
    # Killed between a record and the line beside it, in the middle of the run.
    (copy / "database_tuning_record.json").write_text("\n".join(whole[:4]) + "\n")
    (copy / "database_trials.jsonl").write_text("\n".join(trials[:3]) + "\n")
    plan = Plan(trials=6, mutated=2, seed=3)
    collect([workload], tmp_path, target=target, protocol=PROTOCOL, plan=plan, machine="bench")
    again = _lines(copy / "database_tuning_record.json")
    assert len(again) == len(whole)
    key = [orjson.dumps(choices_of(r)) for r in again]
    assert sorted(key) == sorted(orjson.dumps(choices_of(orjson.loads(line))) for line in whole)


def test_another_protocol_or_workload_is_not_taken_for_what_is_there(
    collected: Path, workload: Workload, target: str, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(collected, tmp_path / collected.name))
    plan = Plan(trials=6, mutated=2, seed=3)
    with pytest.raises(LiveError, match="a log with another min_repeat_ms"):
        other = replace(PROTOCOL, min_repeat_ms=2)
        collect([workload], tmp_path, target=target, protocol=other, plan=plan)
    before = _lines(copy / "database_tuning_record.json")
    # The file that defines it was edited: the same tiles, of other numbers.
    doubles = as_module(te_workload.matmul(8, 12, 16, "float64", "float64"))
    edited = [Workload(workload.name, doubles)]
    collect(edited, tmp_path, target=target, protocol=PROTOCOL, plan=plan)
    after = _lines(copy / "database_tuning_record.json")
    assert after[: len(before)] == before
    assert {record[0] for record in after[len(before) :]} == {1}


def choices_of(record: list) -> list:
    """The decisions of a record, as what tells candidates apart."""
    return [[c.position, c.value] for c in choices(record[1][0])]


def test_a_small_space_is_measured_whole_on_every_occasion(target: str, tmp_path: Path) -> None:
    workload = parse_workload("matmul:1,1,3")[0]
    plan = Plan(enumerate_up_to=300, occasions=2)
    result = collect([workload], tmp_path, target=target, protocol=PROTOCOL, plan=plan)
    size = result["workloads"][0]["space_size"]
    assert size and result["records"] == 2 * size
    ingest([tmp_path], tmp_path / "dataset")
    dataset = open_dataset(tmp_path / "dataset")
    candidates = dataset.candidates()
    assert len(candidates) == size
    assert set(candidates["n_ok"]) == {2}
    assert list(dataset.enumerated().values()) == [True]


def test_an_occasion_goes_round_all_workloads_before_the_next_begins(
    target: str, tmp_path: Path
) -> None:
    workloads = [parse_workload(text)[0] for text in ("matmul:4,4,4", "matmul:4,4,8")]
    plan = Plan(trials=2, occasions=2)
    result = collect(workloads, tmp_path, target=target, protocol=PROTOCOL, plan=plan)
    assert [(w["name"], w["records"]) for w in result["workloads"]] == [
        (workload.name, 4) for workload in workloads
    ]
    measured = sorted(
        (trial["timestamp"], trial["occasion"], number)
        for number, workload in enumerate(workloads)
        for trial in _lines(tmp_path / folder_name(workload.name) / "database_trials.jsonl")
    )
    order = [(occasion, number) for _, occasion, number in measured]
    assert order == sorted(order) and len(order) == 8


def test_the_dataset_and_the_live_space_agree_on_who_is_who(
    collected: Path, design: DesignSpace, tmp_path: Path
) -> None:
    ingest([collected], tmp_path / "dataset")
    dataset = open_dataset(tmp_path / "dataset")
    space = MetaScheduleSpace(design, machine="bench")
    assert list(dataset.tasks()) == [space.task.task_id]
    rows = dataset.candidates()
    assert set(rows["sketch_id"]) <= {sketch.sketch_id for sketch in space.sketches}
    for candidate_id, schedule in zip(rows["candidate_id"], rows["schedule"], strict=True):
        adopted = space.adopt(schedule)
        assert adopted is not None and adopted.candidate_id == candidate_id


def test_failures_are_recorded_with_their_cause(
    design: DesignSpace, target: str, tmp_path: Path
) -> None:
    with DatabaseWriter(tmp_path / "db", target) as writer:
        index = writer.workload_index(design.module)
        reading = MeasureResult(TrialState.RUN_TIMEOUT, build_s=1.0, run_s=2.0, error="too slow")
        writer.add(index, design.bases[0], [], reading)
    assert _lines(tmp_path / "db" / "database_tuning_record.json")[0][1][1] == [1e10]
    ingest([tmp_path / "db"], tmp_path / "dataset")
    records = open_dataset(tmp_path / "dataset").records().collect()
    assert records["state"].to_list() == ["run_timeout"]
    assert records["latency_s"].to_list() == [None]
    assert records["elapsed_s"].to_list() == [3.0]


def test_a_database_that_the_toolkit_did_not_write_stays_as_it_is(
    collected: Path, target: str, tmp_path: Path
) -> None:
    for name in ("database_workload.json", "database_tuning_record.json"):
        (tmp_path / name).write_bytes((collected / name).read_bytes())
    with pytest.raises(LiveError, match="did not write"):
        DatabaseWriter(tmp_path, target)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        name: (collected / name).read_bytes()
        for name in ("database_workload.json", "database_tuning_record.json")
    }


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("database_workload.json", b"{}"),
        ("database_workload.json", b"[]"),
        ("database_tuning_record.json", b'[0, [[[]], [1.0], {"kind": "llvm"}, []]]'),
        ("database_trials.jsonl", b"{}"),
        ("database_refused.jsonl", b"[]"),
        ("database_refused.jsonl", b"{}"),
    ],
)
def test_a_damaged_line_is_a_named_error(
    collected: Path, target: str, tmp_path: Path, name: str, line: bytes
) -> None:
    path = Path(shutil.copytree(collected, tmp_path / "copy")) / name
    others = path.read_bytes().splitlines()[1:] if path.is_file() else []
    path.write_bytes(b"".join(one + b"\n" for one in (line, *others)))
    with (
        pytest.raises(LiveError, match="a line of this file is damaged") as raised,
        DatabaseWriter(path.parent, target) as writer,
    ):
        writer.refuse(0, "a candidate", "refused")
    assert name in str(raised.value)


def test_a_record_that_does_not_fit_leaves_no_part_of_it(
    design: DesignSpace, target: str, tmp_path: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with DatabaseWriter(tmp_path, target) as writer:
        index = writer.workload_index(design.module)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, limits[1]))
        try:
            with pytest.raises(LiveError, match="could not write"):
                writer.add(index, [[], []], ["x" * 10_000], MeasureResult(TrialState.COMPILE))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "database_tuning_record.json").read_bytes() == b""


def test_a_workloads_name_is_no_path(target: str, tmp_path: Path) -> None:
    module = parse_workload("matmul:8,8,8")[0].module
    names = ["..", ".", "", "/", "../../etc", "/tmp/absolute", "n" * 300, "n" * 301, "ein Name"]
    out = tmp_path / "a" / "b" / "c"
    collect(
        [Workload(name, module) for name in names],
        out,
        target=target,
        protocol=PROTOCOL,
        plan=Plan(trials=0),
    )
    assert len(list(out.iterdir())) == len(names), "each has a folder of its own"
    made = {path.parent.parent for path in tmp_path.rglob("database_workload.json")}
    assert made == {out}


def test_random_workloads_are_measured_by_their_names(tmp_path: Path) -> None:
    command = ("collect", "--random", "2", "--seed", "4", "--trials", "2", "--threads", "1")
    code, said, err = here(*command, "--json", cwd=tmp_path)
    assert code == 0, err
    found = orjson.loads(said)["workloads"]
    assert [row["name"] for row in found] == draw_workloads(2, seed=4)
    assert all(row["records"] == 2 for row in found)


def test_generations_of_the_fastest_are_mutated_on_request(tmp_path: Path) -> None:
    command = ("collect", "--workload", "matmul:32,32,32", "--trials", "3", "--threads", "1")
    code, said, err = here(*command, "--refine", "1", "--refine", "1", "--json", cwd=tmp_path)
    assert code == 0, err
    (row,) = orjson.loads(said)["workloads"]
    folder = tmp_path / row["folder"]
    trials = _lines(folder / "database_trials.jsonl")
    assert len({t["parent"] for t in trials if t["parent"] is not None}) == 2
    assert orjson.loads((folder / "collection.json").read_bytes())["plan"]["refined"] == [1, 1]
