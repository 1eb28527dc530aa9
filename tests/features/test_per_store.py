"""TVM's per-store features: from records that TVM itself wrote here, and past crashes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from toolkit import children
from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.per_store import (
    MOST_STATEMENTS,
    STORE_COLUMNS,
    PerStatementExtractor,
    PerStoreExtractor,
)
from toolkit.workspace import bundled

WRITER = """
import sys, types
sys.modules["tvm.s_tir.tensor_intrin"] = types.ModuleType("tvm.s_tir.tensor_intrin")
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

a, b = te.placeholder((16, 16), name="a"), te.placeholder((16, 16), name="b")
k = te.reduce_axis((0, 16), name="k")
c = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
context = ms.TuneContext(mod=module, target=target, num_threads=1,
    space_generator="post-order-apply", task_name="main")
database = ms.database.JSONDatabase(work_dir=sys.argv[1])
workload = database.commit_workload(module)
for schedule in context.generate_design_space()[:2]:
    database.commit_tuning_record(ms.database.TuningRecord(schedule.trace, workload, [1e-6], target,
        ms.arg_info.ArgInfo.from_entry_func(module, False)))
"""

FAKE = """
import base64, struct, sys
lines = sys.stdin.buffer
lines.readline()
print('{"ready": true}', flush=True)
for line in lines:
    if b"crash" in line:
        sys.exit(9)
    if b"hang" in line:
        import time
        time.sleep(60)
    if b"refuse" in line:
        print('{"counts": [0], "dtype": "float32", "values": ""}', flush=True)
    else:
        values = base64.b64encode(struct.pack("164d", *[1.0] * 164)).decode()
        print('{"counts": [1], "dtype": "float64", "values": "%s"}' % values, flush=True)
"""


@pytest.fixture(scope="module")
def written_by_tvm(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Two records of a matrix product, written by TVM in a process of its own."""
    import subprocess

    folder = tmp_path_factory.mktemp("tvm")
    (folder / "log").mkdir()
    subprocess.run([sys.executable, "-c", WRITER, str(folder / "log")], check=True)
    ingest([folder / "log"], folder / "dataset")
    return open_dataset(folder / "dataset")


def group_of(dataset: Dataset) -> CandidateGroup:
    return next(group for group, _ in dataset.groups())


def test_records_of_tvm_have_its_columns(written_by_tvm: Dataset) -> None:
    extractor = PerStoreExtractor()
    group = group_of(written_by_tvm)
    assert extractor.supports(group.task)
    block = extractor.extract(group)
    assert block.columns == extractor.columns()
    assert np.isfinite(block.values).all()
    assert (block.values[:, -1] >= 1).all()
    # 16 * 16 * 16 multiply-adds are in the arithmetic columns, as log2(1 + n)
    main = block.values[0, STORE_COLUMNS : STORE_COLUMNS + 16]
    assert np.isclose(main, np.log2(1 + 16**3), atol=1e-3).any()
    assert extractor.crashes == 0


def fake_group(*schedules: str) -> CandidateGroup:
    from toolkit.records import Sketch, Task

    task = Task("t", "metaschedule", "w", [], '{"kind":"llvm"}', "llvm", blob="[]")
    decisions = np.zeros((len(schedules), 0), dtype=np.int64)
    return CandidateGroup(task, Sketch("s", "metaschedule", "[]", ()), decisions, schedules)


def test_a_crash_costs_one_candidate(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text(FAKE)
    extractor = PerStoreExtractor([sys.executable, str(tmp_path / "fake.py")], timeout_s=20)
    block = extractor.extract(fake_group("good", "crash", "good", "refuse", "good"))
    assert np.isfinite(block.values).all(axis=1).tolist() == [True, False, True, False, True]
    assert extractor.crashes == 1


def test_a_process_that_is_killed_costs_no_candidate(tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.touch()
    die = f"os.path.exists({str(once)!r}) and (os.remove({str(once)!r}), os.kill(os.getpid(), 9))"
    (tmp_path / "fake.py").write_text("import os\n" + FAKE.replace("sys.exit(9)", die))
    extractor = PerStoreExtractor([sys.executable, str(tmp_path / "fake.py")], timeout_s=20)
    block = extractor.extract(fake_group("good", "crash", "good"))
    assert not once.exists() and np.isfinite(block.values).all() and extractor.crashes == 0


def test_an_interrupted_answer_is_not_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake.py").write_text(FAKE)
    extractor = PerStoreExtractor([sys.executable, str(tmp_path / "fake.py")], timeout_s=20)
    extractor.extract(fake_group("good"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("selectors.DefaultSelector.select", _interrupt)
        extractor.extract(fake_group("good"))
    block = extractor.extract(fake_group("refuse", "good"))
    assert np.isfinite(block.values).all(axis=1).tolist() == [False, True]


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_candidate_that_never_ends_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text(FAKE)
    extractor = PerStoreExtractor([sys.executable, str(tmp_path / "fake.py")], timeout_s=4.0)
    block = extractor.extract(fake_group("hang", "good"))
    assert np.isfinite(block.values).all(axis=1).tolist() == [False, True]


def test_a_workload_that_tvm_cannot_load_is_a_named_error() -> None:
    extractor = PerStoreExtractor([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(DatasetError, match="cannot load this workload"):
        extractor.extract(fake_group("good"))


def test_without_schedules_it_says_what_to_use(written_by_tvm: Dataset) -> None:
    group = group_of(written_by_tvm)
    bare = CandidateGroup(group.task, group.sketch, group.decisions)
    with pytest.raises(DatasetError, match="need the candidates' schedules"):
        PerStoreExtractor().extract(bare)


def test_databases_of_older_tvm_are_not_supported() -> None:
    import loglines

    from toolkit.records import Task

    for new in (False, True):
        line = orjson.dumps(loglines.workload(new=new)).decode()
        task = Task("t", "metaschedule", "w", [], "llvm", "llvm", blob=line)
        assert PerStoreExtractor().supports(task) is new


def test_stores_are_folded_to_their_maximum_and_the_busiest() -> None:
    stores = np.zeros((2, STORE_COLUMNS))
    stores[0, 0], stores[1, 3], stores[0, 100], stores[1, 100] = 5.0, 2.0, 1.0, 9.0
    extractor = PerStoreExtractor()
    row = dict(zip(extractor.columns(), extractor.row(stores).tolist(), strict=True))
    assert row["ps_max_0"] == 5.0
    assert row["ps_max_100"] == 9.0
    assert row["ps_main_100"] == 1.0
    assert row["ps_stores"] == 2.0


def test_statements_kept_apart_are_those_that_are_folded(written_by_tvm: Dataset) -> None:
    group = group_of(written_by_tvm)
    apart = PerStatementExtractor().extract(group)
    assert apart.columns[STORE_COLUMNS + 7] == "ps_1_7"
    stores = apart.values.reshape(len(group), MOST_STATEMENTS, STORE_COLUMNS)
    there = np.isfinite(stores)
    assert (there.all(axis=2) == there.any(axis=2)).all()
    folded = PerStoreExtractor()
    again = [folded.row(one[np.isfinite(one[:, 0])].astype(float)) for one in stores]
    assert np.array_equal(again, folded.extract(group).values)


def test_the_busiest_statements_come_first_and_the_idlest_of_too_many_are_left_out() -> None:
    count = MOST_STATEMENTS + 2
    stores = np.zeros((count, STORE_COLUMNS))
    stores[:, 3] = np.arange(count) // 2
    stores[:, 100] = np.arange(count)
    row = PerStatementExtractor().row(stores).reshape(MOST_STATEMENTS, STORE_COLUMNS)
    assert row[:, 100].tolist() == [8, 9, 6, 7, 4, 5, 2, 3]
    short = PerStatementExtractor().row(stores[:3]).reshape(MOST_STATEMENTS, STORE_COLUMNS)
    assert np.isfinite(short).all(axis=1).tolist() == [True] * 3 + [False] * (MOST_STATEMENTS - 3)


def test_one_process_serves_one_task_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = sorted((bundled("datasets") / "epyc-znver4-1core").glob("*matmul*"))[:2]
    ingest(logs, tmp_path / "dataset")
    groups = [group for group, _ in open_dataset(tmp_path / "dataset").groups()]
    firsts = {g.task.task_id: g for g in groups if len(g) > 1 and g.schedules is not None}
    assert len(firsts) == 2
    one, other = (
        replace(g, decisions=g.decisions[:2], schedules=(g.schedules or ())[:2])
        for g in firsts.values()
    )
    first, second = (PerStoreExtractor().extract(group).values for group in (one, other))
    assert not np.array_equal(first, second)
    started: list[Any] = []
    start = children.start

    def counted(*arguments: Any, **options: Any) -> Any:
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(children, "start", counted)
    extractor = PerStoreExtractor()
    found = [extractor.extract(group).values for group in (one, other, one)]
    assert np.array_equal(found, [first, second, first])
    assert len(started) == 1
    # A workload that TVM does not load is named, and costs the others nothing.
    with pytest.raises(DatasetError, match="cannot load this workload"):
        extractor.extract(fake_group("good"))
    assert np.array_equal(extractor.extract(other).values, second)
    del extractor
    assert started[-1].wait(10) is not None
