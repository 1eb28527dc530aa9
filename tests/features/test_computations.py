"""What tasks compute, told alike from every format, and how fast that is."""

from __future__ import annotations

from pathlib import Path

import loglines
import orjson
import pytest
from running import here

from toolkit import show
from toolkit.datasets import ingest, open_dataset
from toolkit.features.computations import (
    computations,
    formats_compared,
    told_comparison,
    told_computation,
)
from toolkit.reports.sections.dataset import dataset_section


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A dense layer in an AutoTVM log and the same product in a MetaSchedule database."""
    (tmp_path / "logs").mkdir()
    line = loglines.autotvm(costs=[1e-3])
    loglines.write(tmp_path / "logs" / "autotvm.json", line)
    ingest(tmp_path / "logs", tmp_path / "tuning" / "dataset", machine="box")
    return tmp_path


def test_flops_and_their_rate(workspace: Path) -> None:
    dataset = open_dataset(workspace / "tuning" / "dataset")
    (task_id,) = dataset.tasks()
    found = computations(dataset)[task_id]
    assert found.family == "matmul"
    product = 1
    for extent in found.extents.values():
        product *= extent
    assert found.flops == 2 * product
    code, said, err = here("describe", "--json", cwd=workspace)
    assert code == 0, err
    (task,) = orjson.loads(said)["tasks"]
    assert task["gflop_per_s"] == pytest.approx(found.flops / task["best_s"] / 1e9)
    assert task["computes"]["family"] == "matmul"
    assert task["of_peak"] is None


def test_products_of_other_types_are_not_the_same_computation(tmp_path: Path) -> None:
    lines = []
    for dtype in ("float32", "int8"):
        tensors = [["TENSOR", shape, dtype] for shape in ([64, 32], [96, 32])]
        lines.append(loglines.autotvm(costs=[1e-3], arguments=[*tensors, None, dtype]))
    ingest(loglines.write(tmp_path / "log.json", *lines), tmp_path / "ds")
    found = computations(open_dataset(tmp_path / "ds")).values()
    told = sorted(told_computation(one.to_json()) for one in found)
    assert len(told) == 2 and told[1] == f"{told[0]} 8 bit"


def test_a_layout_that_is_not_known_has_no_rate(tmp_path: Path) -> None:
    """As TVM's own collection has them for VTA: convolutions in blocks of channels."""
    tensors = [["TENSOR", shape, "int8"] for shape in ([1, 3, 20, 20, 1, 16], [2, 3, 3, 3, 16, 16])]
    arguments = [*tensors, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW1n16c", "int32"]
    line = loglines.autotvm(costs=[1e-3], arguments=arguments)
    line["input"][1] = "conv2d_packed.vta"
    loglines.write(tmp_path / "log.json", line)
    ingest(tmp_path / "log.json", tmp_path / "ds")
    assert computations(open_dataset(tmp_path / "ds")) == {}


@pytest.mark.parametrize(
    ("shapes", "stride"),
    [(([1, 64, 28], [64, 64]), [1]), (([1, 3, 20, 20], [8, 3, 3, 3]), [0, 0])],
    ids=["weights of a matrix product", "no stride"],
)
def test_a_convolution_that_is_none_has_no_rate(
    tmp_path: Path, shapes: tuple[list[int], list[int]], stride: list[int]
) -> None:
    """A template of one's own may be called ``conv`` for other reasons."""
    tensors = [["TENSOR", shape, "float32"] for shape in shapes]
    line = loglines.autotvm(costs=[1e-3], arguments=[*tensors, stride, 0, [1, 1], "float32"])
    line["input"][1] = "my_conv.x86"
    loglines.write(tmp_path / "log.json", line)
    ingest(tmp_path / "log.json", tmp_path / "ds")
    assert computations(open_dataset(tmp_path / "ds")) == {}


def test_the_share_of_what_the_machine_can_do(workspace: Path) -> None:
    code, said, err = here("describe", "--peak", "200", "--json", cwd=workspace)
    assert code == 0, err
    (task,) = orjson.loads(said)["tasks"]
    assert task["of_peak"] == pytest.approx(task["gflop_per_s"] / 200)
    code, said, err = here("describe", "--peak", "200", cwd=workspace)
    assert code == 0, err
    assert "of peak" in said
    line = loglines.autotvm(costs=[2e-3])
    loglines.write(workspace / "logs" / "another.json", line)
    ingest(workspace / "logs" / "another.json", workspace / "tuning" / "dataset", machine="other")
    code, said, err = here("describe", "--peak", "200", cwd=workspace)
    assert code == 1 and "--peak 'box=200'" in err
    code, said, err = here("describe", "--peak", "200", "--machine", "box", cwd=workspace)
    assert code == 0, err
    code, said, err = here("describe", "--peak", "elsewhere=200", cwd=workspace)
    assert code == 1 and "box, other" in err
    code, said, err = here("describe", "--peak", "box=many", cwd=workspace)
    assert code == 1 and "GFLOP/s" in err


def test_the_report_has_the_shares_of_the_machines_that_are_named(workspace: Path) -> None:
    line = loglines.autotvm(costs=[2e-3])
    loglines.write(workspace / "logs" / "another.json", line)
    ingest(workspace / "logs" / "another.json", workspace / "tuning" / "dataset", machine="a=b")
    given = ["--peak", "box=200", "--peak", "a=b=100"]
    code, said, err = here("report", *given, "--json", cwd=workspace)
    assert code == 0, err
    tasks = {task["machine"]: task for task in orjson.loads(said)["dataset"]["tasks"]}
    assert tasks["box"]["of_peak"] == pytest.approx(tasks["box"]["gflop_per_s"] / 200)
    assert tasks["a=b"]["of_peak"] == pytest.approx(tasks["a=b"]["gflop_per_s"] / 100)
    page = (workspace / "tuning" / "report.html").read_text()
    assert ">of peak<" in page and show.percent(tasks["box"]["of_peak"], 0) in page
    code, said, err = here("report", cwd=workspace)
    assert code == 0, err
    assert ">of peak<" not in (workspace / "tuning" / "report.html").read_text()


def test_the_bundled_logs_have_the_same_product_in_two_formats(tmp_path: Path) -> None:
    bundled = Path(__file__).parents[2] / "datasets"
    both = [bundled / "ansor-epyc-znver5-1core", bundled / "epyc-znver5-1core"]
    ingest(both, tmp_path / "tuning" / "dataset")
    dataset = open_dataset(tmp_path / "tuning" / "dataset")
    formats: dict[object, set[str]] = {}
    found = computations(dataset)
    for task_id, task in dataset.tasks().items():
        formats.setdefault(told_computation(found[task_id]), set()).add(task.format)
    assert [known for known in formats.values() if known == {"ansor", "metaschedule"}]
    section = dataset_section(tmp_path / "tuning" / "dataset")
    assert {row["format"] for row in section["several_formats"]} == {"ansor", "metaschedule"}
    assert all(row["gflop_per_s"] > 0 for row in section["several_formats"])
    code, said, err = here("describe", cwd=tmp_path)
    assert code == 0, err
    assert "The same computation in several formats" in said and "GFLOP/s" in said
    # Their machines have different names: formats are not compared across machines.
    assert section["formats_compared"] == [] and "in the median" not in said


def test_formats_are_compared_within_a_machine_by_the_best_task_of_each() -> None:
    def task(
        format: str, machine: str, co: int, best_s: float | None, kind: str = "llvm"
    ) -> dict[str, object]:
        computes = {"family": "conv", "extents": {"co": co}, "stride": 1, "flops": 1.0}
        about = {"format": format, "machine": machine, "target_kind": kind, "best_s": best_s}
        return {**about, "computes": {**computes, "element_bytes": 4.0}}

    twins = [
        task("ansor", "a", 8, 1e-3), task("ansor", "a", 8, 5e-3), task("autotvm", "a", 8, 2e-3),
        task("ansor", "a", 16, 4e-3), task("autotvm", "a", 16, 2e-3), task("ansor", "b", 8, 1e-9),
        task("autotvm", "a", 32, None), task("ansor", "a", 32, 1e-3),
        task("ansor", "a", 64, 1e-3), task("autotvm", "a", 64, 1e-6, "cuda"),
    ]  # fmt: skip
    (found,) = formats_compared(twins)
    assert (found.machine, found.first, found.second) == ("a", "ansor", "autotvm")
    assert (found.computations, found.faster, found.ratio) == (2, 1, pytest.approx(1.25))
    assert told_comparison(found) == (
        "On a, for llvm, ansor is faster than autotvm in 1 of 2 computations that both have (best "
        "task of each); the latency of ansor is 1.250 times as high in the median."
    )
