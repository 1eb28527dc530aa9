"""TVM itself writes a database; what is exported of it, TVM reads and applies."""

from __future__ import annotations

import pytest

from toolkit.datasets import export, ingest, open_dataset

pytestmark = pytest.mark.live


@pytest.fixture
def database(tmp_path):
    tvm = pytest.importorskip("tvm")
    from tvm import te
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.testing import te_workload

    from toolkit.live.space.intrinsics import load_intrinsics

    load_intrinsics()
    function = te.create_prim_func(te_workload.matmul(64, 64, 64))
    module = tvm.IRModule({"main": function})
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    folder = tmp_path / "written"
    folder.mkdir()
    written = ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    workload = written.commit_workload(module)
    context = ms.TuneContext(mod=module, target=target, space_generator="post-order-apply")
    arguments = ms.arg_info.ArgInfo.from_prim_func(function)
    for number, schedule in enumerate(context.generate_design_space(), start=1):
        written.commit_tuning_record(
            ms.database.TuningRecord(
                schedule.trace, workload, [1e-3 * number, 2e-3 * number], target, arguments
            )
        )
    return folder, module, target


def test_tvm_loads_what_was_exported(database, tmp_path):
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms

    folder, module, target = database
    report = ingest(folder, tmp_path / "ds")
    assert report.records == 3
    dataset = open_dataset(tmp_path / "ds")
    (task,) = dataset.tasks().values()
    assert (task.extents, task.target_kind) == ((64, 64, 64), "llvm")
    out = tmp_path / "exported"
    export(dataset, out, "metaschedule", top=1)
    loaded = ms.database.JSONDatabase(
        str(out / "database_workload.json"), str(out / "database_tuning_record.json")
    )
    assert len(loaded) == 1
    assert loaded.has_workload(module)
    (best,) = loaded.get_top_k(loaded.commit_workload(module), 1)
    assert [float(seconds) for seconds in best.run_secs] == [1e-3, 2e-3]
    assert loaded.query_schedule(module, target, "main") is not None
    with target:
        applied = relax.transform.MetaScheduleApplyDatabase(str(out))(module)
    assert "is_scheduled" in str(applied["main"].attrs)
    assert "is_scheduled" not in str(module["main"].attrs)
