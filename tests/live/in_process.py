"""TVM's builder and runner without worker processes, which take seconds each to start."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import local_builder
from tvm.s_tir.meta_schedule.runner import local_runner


@derived_object
class BuilderHere(ms.builder.PyBuilder):
    """Builds in this process, by what TVM's workers call."""

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        """Build and export each."""
        results = []
        for wanted in build_inputs:
            with warnings.catch_warnings():
                # It calls a function that TVM has since deprecated.
                warnings.simplefilter("ignore", DeprecationWarning)
                path = local_builder._worker_func(None, None, wanted.mod, wanted.target, None)
            results.append(ms.builder.BuilderResult(path, None))
        return results


@derived_object
class RunnerHere(ms.runner.PyRunner):
    """Times in this process, by what TVM's worker calls."""

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        """Run each for a moment."""
        config = ms.runner.EvaluatorConfig(
            number=1, repeat=1, min_repeat_ms=1, enable_cpu_cache_flush=False
        )
        futures = []
        for wanted in runner_inputs:
            arguments = [info.as_json() for info in wanted.args_info]
            seconds = local_runner._worker_func(
                None, None, None, config, 1, str(wanted.artifact_path), "cpu", arguments
            )
            result = ms.runner.RunnerResult(seconds, None)
            futures.append(ms.runner.RunnerFuture(lambda: True, lambda result=result: result))
        return futures
