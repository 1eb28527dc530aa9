"""Our strategies inside TVM's own tuner."""

from __future__ import annotations

import tempfile
from pathlib import Path

import orjson
import pytest
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from toolkit import live
from toolkit.errors import ModelError
from toolkit.live.measure.device import Device
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.programs import count_inputs
from toolkit.live.workloads.named import Workload
from toolkit.records import TrialState


@derived_object
class NoBuilder(ms.builder.PyBuilder):
    """Hands programs through: TVM's own builder takes ten seconds to start a worker."""

    def build(self, build_inputs):
        results = []
        for each in build_inputs:
            PROGRAMS.append(each.mod)
            # TVM removes the folder of an artifact when it was measured.
            artifact = Path(tempfile.mkdtemp()) / str(len(PROGRAMS) - 1)
            results.append(ms.builder.BuilderResult(str(artifact), None))
        return results


@derived_object
class Known(ms.runner.PyRunnerFuture):
    def __init__(self, seconds: list[float] | None) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        return True

    def result(self):
        error = None if self.seconds else "it failed"
        return ms.runner.RunnerResult(self.seconds, error)


@derived_object
class DeviceRunner(ms.runner.PyRunner):
    """Measures on the toolkit's device; every seventh program is reported as failed."""

    def run(self, runner_inputs):
        futures = []
        for each in runner_inputs:
            number = int(Path(str(each.artifact_path)).name)
            reading = DEVICES[0].measure(_program(PROGRAMS[number]))
            assert reading.state is TrialState.OK
            futures.append(Known(None if number % 7 == 6 else list(reading.run_times_s)))
        return futures


PROGRAMS: list = []
DEVICES: list[Device] = []


def _program(module: tvm.IRModule):
    from toolkit.live.measure.program import Program
    from toolkit.live.space.programs import entry_arguments

    text = str(tvm.ir.save_json(module))
    arguments = entry_arguments(module, as_timed=True)
    return Program(str(hash(text)), text, arguments, count_inputs(module))


def test_tvm_tunes_with_our_strategy(workload: Workload, target: str, tmp_path: Path) -> None:
    options = {"round_size": 6, "population": 12, "iterations": 1, "sampled": 8}
    del PROGRAMS[:]
    with Device(target, Protocol(repeat=2, min_repeat_ms=1, max_retries=0)) as device:
        DEVICES[:] = [device]
        database = ms.tune_tir(
            workload.module,
            tvm.target.Target(orjson.loads(target)),
            work_dir=str(tmp_path),
            max_trials_global=16,
            num_trials_per_iter=6,
            builder=NoBuilder(),
            runner=DeviceRunner(),
            cost_model="random",
            strategy=live.strategy("etc-sketch", options=options, seed=3),
        )
    assert len(PROGRAMS) == 16, "the budget is TVM's"
    assert len(database) == 16
    lines = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    traces = {orjson.dumps(orjson.loads(line)[1][0]) for line in lines}
    assert len(traces) == 16, "a strategy proposes nothing twice"
    schedule = ms.tir_integration.compile_tir(
        database,
        workload.module,
        tvm.target.Target(orjson.loads(target)),
    )
    assert schedule is not None


def test_a_model_that_is_not_there_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        live.strategy("transfer", model=tmp_path)
