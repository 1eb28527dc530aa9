"""Workloads by name and from a user's file; mistakes are named with their cure."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tvm.s_tir.analysis import estimate_tir_flops

from toolkit.datasets import ingest
from toolkit.errors import LiveError
from toolkit.live.measure.machine import default_target, parse_target
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.programs import count_inputs, entry_arguments
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tune import tune
from toolkit.live.workloads.drawn import (
    KINDS,
    LEAST_ELEMENTS,
    MOST_ELEMENTS,
    MOST_OPERATIONS,
    draw_workloads,
)
from toolkit.live.workloads.named import parse_workload
from toolkit.networks.tasks import tasks_of
from toolkit.training.trained.models import TrainedModels


def test_names_sets_and_files(tmp_path: Path) -> None:
    assert parse_workload("matmul:8,12,16")[0].name == "matmul:8,12,16"
    assert [w.name for w in parse_workload("GMM:0")] == ["GMM:0"]
    assert len(parse_workload("GMM")) > 1
    file = tmp_path / "mine.py"
    file.write_text(
        "from tvm import te\n"
        "def relu():\n"
        "    a = te.placeholder((4, 4), name='A')\n"
        "    return [a, te.compute((4, 4), lambda i, j: te.max(a[i, j], 0.0), name='B')]\n"
        "def scale():\n"
        "    a = te.placeholder((4,), name='A')\n"
        "    return [a, te.compute((4,), lambda i: a[i] * 2.0, name='B')]\n"
        "WORKLOADS = {'relu': relu, 'scale': te.create_prim_func(scale())}\n"
    )
    assert [w.name for w in parse_workload(str(file))] == ["relu", "scale"]
    with pytest.raises(LiveError, match="'scale'"):
        parse_workload(f"{file}:scales")
    (only,) = parse_workload(f"{file}:scale")
    assert entry_arguments(only.module, as_timed=True) == [["TENSOR", "float32", [4]]] * 2
    assert count_inputs(only.module) == 1


def test_a_file_may_hold_tvmscript(tmp_path: Path) -> None:
    file = tmp_path / "json.py"  # a name that Python has as well
    file.write_text(
        "from tvm.script import ir as I\n"
        "from tvm.script import tirx as T\n"
        "@I.ir_module\n"
        "class Net:\n"
        "    @T.prim_func(s_tir=True)\n"
        "    def main(a: T.Buffer((4,), 'float32'), b: T.Buffer((4,), 'float32')):\n"
        "        for i in range(4):\n"
        "            with T.sblock('B'):\n"
        "                v = T.axis.spatial(4, i)\n"
        "                b[v] = a[v] * T.float32(2)\n"
        "WORKLOADS = {'net': Net}\n"
    )
    (only,) = parse_workload(str(file))
    assert entry_arguments(only.module, as_timed=True) == [["TENSOR", "float32", [4]]] * 2


def test_minus_infinity_is_tuned(tmp_path: Path) -> None:
    """As masks hold it: TVM writes the number into the database as no JSON has it."""
    file = tmp_path / "mask.py"
    file.write_text(
        "from tvm import te, tirx\n"
        "def mask():\n"
        "    a = te.placeholder((8, 8), name='A')\n"
        "    low = tirx.const(float('-inf'), 'float32')\n"
        "    of = lambda i, j: tirx.if_then_else(i >= j, a[i, j], low)\n"
        "    return [a, te.compute((8, 8), of, name='B')]\n"
        "WORKLOADS = {'mask': mask}\n"
    )
    target = parse_target(default_target(1))
    settings = TuneSettings(trials=1, finalists=0, strategy="random")
    result = tune(
        tasks_of([str(file)], target), tmp_path / "out", target=target, settings=settings,
        protocol=Protocol(number=1, repeat=1, min_repeat_ms=1, threads=1),
        guides=TrainedModels(),
    )  # fmt: skip
    assert result.trials == 1 and result.tasks[0]["best_latency_s"] > 0
    assert ingest([tmp_path / "out"], tmp_path / "dataset").records == 1


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("matmull:8,8,8", "matmul"),
        ("matmul:8,eight,8", "matmul:128,128,128"),
        ("matmul:8", "arguments are"),
        ("GMM:99", ""),
        ("nowhere.py", ""),
    ],
)
def test_mistakes_are_named_with_their_cure(text: str, cure: str) -> None:
    with pytest.raises(LiveError) as caught:
        parse_workload(text)
    assert cure in str(caught.value)


def test_a_file_without_workloads_says_what_to_define(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("x = 1\n")
    with pytest.raises(LiveError, match="WORKLOADS"):
        parse_workload(str(file))
    file.write_text("raise ValueError('broken')\n")
    with pytest.raises(LiveError, match="broken"):
        parse_workload(str(file))


def test_drawn_workloads_are_of_all_kinds_and_can_be_built() -> None:
    names = draw_workloads(3 * len(KINDS), seed=1)
    assert len(set(names)) == len(names)
    kinds = [
        next(n for n, (known, _) in enumerate(KINDS) if _head(name) in known) for name in names
    ]
    assert kinds == list(range(len(KINDS))) * 3
    assert draw_workloads(7, seed=1) == names[:7]
    assert draw_workloads(7, seed=2) != names[:7]
    for name in names:
        (workload,) = parse_workload(name)
        assert workload.name == name
        assert estimate_tir_flops(workload.module) <= 2 * MOST_OPERATIONS
        shapes = [shape for _, _, shape in entry_arguments(workload.module, as_timed=True)]
        assert LEAST_ELEMENTS / 4 <= max(map(math.prod, shapes)) <= 2 * MOST_ELEMENTS


def _head(name: str) -> str:
    return name.partition(":")[0]
