"""TVM's own tuner, with a record of when the result of each trial was known.

``tune_tir`` of TVM 0.27 (``meta_schedule/tir_integration.py``) with its own builder, runner,
evolutionary search, cost model and batch size. Two things are added. A measure callback after TVM's
own callbacks writes down all results. Build workers start faster
(``toolkit.live.space.intrinsics``): otherwise they need 11 to 27 s of a batch's limit of 30 s.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import LocalBuilder
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

from toolkit.live.measure.machine import tvm_target
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.intrinsics import load_intrinsics

TRIALS_FILE = "stock_trials.jsonl"
"""Trials in order: batch, clock_s, latency_s (``None``: it failed), error."""


@derived_object
class TrialNotes(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Writes latency, error and time of each trial, one line each, after every batch."""

    def __init__(self, path: Path, started: float) -> None:
        super().__init__()
        self.path, self.started, self.batch = path, started, 0

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        """Write down one batch; all its trials are known when it ends."""
        now = time.perf_counter() - self.started
        with self.path.open("ab") as file:
            for built, ran in zip(builder_results, runner_results, strict=True):
                error = built.error_msg if built.error_msg is not None else ran.error_msg
                times = [] if ran.run_secs is None else [float(s) for s in ran.run_secs]
                row = {
                    "batch": self.batch,
                    "clock_s": now,
                    "latency_s": sum(times) / len(times) if error is None and times else None,
                    "error": None if error is None else str(error)[-300:],
                }
                file.write(orjson.dumps(row) + b"\n")
        self.batch += 1


def tune_stock(
    module: tvm.IRModule,
    folder: Path,
    *,
    target: str,
    protocol: Protocol,
    trials: int,
    seed: int,
    started: float,
    build_timeout_s: float | None,
    cost_model: Any,
    batch: int | None,
) -> None:
    """Tune with TVM's own tuner into a database in ``folder``.

    ``started`` is the value of ``time.perf_counter()`` at clock time 0. Only the evaluator's
    settings of the protocol are used. Time limits of builder and runner are TVM's own;
    ``build_timeout_s`` replaces the builder's (30 s). ``cost_model`` and ``batch`` (trials between
    two trainings) replace TVM's own, unless they are ``None``.
    """
    config = EvaluatorConfig(
        number=protocol.number,
        repeat=protocol.repeat,
        min_repeat_ms=protocol.min_repeat_ms,
        enable_cpu_cache_flush=protocol.cache_flush,
    )
    notes = TrialNotes(folder / TRIALS_FILE, started)
    limit = {} if build_timeout_s is None else {"timeout_sec": build_timeout_s}
    ms.tune_tir(
        module,
        tvm_target(target),
        work_dir=str(folder),
        max_trials_global=trials,
        builder=LocalBuilder(initializer=partial(load_intrinsics, target), **limit),
        runner=LocalRunner(evaluator_config=config),
        measure_callbacks=[*ms.measure_callback.MeasureCallback.create("default"), notes],
        seed=seed + 1,
        **({} if cost_model is None else {"cost_model": cost_model}),
        **({} if batch is None else {"num_trials_per_iter": batch}),
    )
