"""NVIDIA GPUs: programs are built ahead here and measured there; left out where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import orjson
import pytest
import tvm

from toolkit.live.measure.apart import ApartEngine
from toolkit.live.measure.device import Device
from toolkit.live.measure.engines import open_engine
from toolkit.live.measure.machine import parse_target
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import checked_program, timed_program
from toolkit.live.tune.collect import Plan, collect
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tune import tune
from toolkit.live.workloads.named import parse_workload
from toolkit.networks.tasks import tasks_of
from toolkit.records import TrialState
from toolkit.training.trained.models import TrainedModels

PROTOCOL = Protocol(repeat=2, min_repeat_ms=1, max_retries=0, build_timeout_s=120.0)
SOME_GPU = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}

needs_gpu = pytest.mark.skipif(not tvm.cuda(0).exist, reason="there is no NVIDIA GPU here")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc here")


def here() -> str:
    """The target of the first GPU of this machine."""
    return parse_target("cuda")


@needs_nvcc
def test_programs_for_a_gpu_are_built_where_there_is_none(tmp_path: Path) -> None:
    target = orjson.dumps(SOME_GPU).decode()
    design = DesignSpace(parse_workload("matmul:64,64,64")[0].module, target)
    drawn = (design.sample(np.random.default_rng(i)) for i in range(20))
    program = next(timed_program(d.schedule, design.inputs) for d in drawn if d is not None)
    with Device(target, PROTOCOL) as builder:
        reading = builder.export(program, str(tmp_path / "built.tar"))
    assert reading.state is TrialState.OK, reading.error
    assert (tmp_path / "built.tar").stat().st_size > 1000


def test_a_gpu_gets_builders_and_a_runner_apart() -> None:
    with open_engine(orjson.dumps(SOME_GPU).decode(), PROTOCOL, builders=1) as engine:
        assert isinstance(engine, ApartEngine) and len(engine.runners) == 1


@needs_gpu
def test_collect_and_tune_run_on_a_gpu(tmp_path: Path) -> None:
    target = here()
    workloads = parse_workload("matmul:64,64,64")
    counts = collect(
        workloads, tmp_path / "c", target=target, protocol=PROTOCOL, plan=Plan(trials=4)
    )
    assert counts["records"] == 4 and counts["failed"] < 4
    result = tune(
        tasks_of(["matmul:64,64,64"], target),
        tmp_path / "t",
        target=target,
        protocol=PROTOCOL,
        settings=TuneSettings(trials=8, strategy="random"),
        guides=TrainedModels(),
        engine=lambda: open_engine(target, PROTOCOL, builders=2),
    )
    assert result["records"] >= result["trials"] >= 8  # what TVM refuses is no trial
    assert result["tasks"][0]["best_latency_s"] > 0
    assert result["tasks"][0]["unchecked"] is None


@needs_gpu
def test_outputs_of_a_gpu_are_compared_with_those_of_the_unscheduled_program() -> None:
    target = here()
    design, other = (
        DesignSpace(parse_workload(name)[0].module, target)
        for name in ("dense_bias:64,64,64", "dense_bias_gelu:64,64,64")
    )
    drawn = (design.sample(np.random.default_rng(i)) for i in range(50))
    program = checked_program(next(d for d in drawn if d).schedule.mod, design.inputs)
    with Device(target, PROTOCOL) as device:
        for unscheduled, state in ((design, TrialState.OK), (other, TrialState.WRONG_ANSWER)):
            plain = checked_program(unscheduled.module, unscheduled.inputs)
            assert device.set_reference(plain).state is TrialState.OK
            assert device.check(program).state is state
