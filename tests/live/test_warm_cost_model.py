"""A trained model inside TVM's own tuner: it scores as ``predict`` does, and it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

from tests.live.in_process import BuilderHere, RunnerHere
from toolkit import live
from toolkit.datasets.opening import opened
from toolkit.errors import ModelError
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import replay_trace
from toolkit.training import load_throughput
from toolkit.training.tasks.prediction import predict

pytestmark = pytest.mark.live


def candidates(design: DesignSpace, count: int) -> tuple[Any, list[Any]]:
    """A tune context and random candidates of a workload."""
    context = ms.TuneContext(mod=design.module, target=design.target, num_threads=1)
    arguments = ms.arg_info.ArgInfo.from_entry_func(design.module, remove_preproc=True)
    rng = np.random.default_rng(0)
    found = []
    while len(found) < count:
        drawn = design.sample(rng)
        if drawn is not None:
            found.append(ms.MeasureCandidate(drawn.schedule, arguments))
    return context, found


def test_it_learns_what_it_is_told_and_keeps_it(
    model: Path, design: DesignSpace, tmp_path: Path
) -> None:
    cost_model = live.cost_model(model)
    context, found = candidates(design, 40)
    before = np.asarray(cost_model.predict(context, found))
    assert before.shape == (40,)
    assert (before > 0).all()
    # The opposite of what it believes, and two failures.
    seconds = np.argsort(np.argsort(before)) + 1.0
    results = [ms.runner.RunnerResult([float(s) * 1e-5], None) for s in seconds]
    results[5] = results[6] = ms.runner.RunnerResult(None, "failed")
    cost_model.update(context, found[:32], results[:32])
    after = np.asarray(cost_model.predict(context, found))
    told = np.corrcoef(-seconds[:32], np.log(after[:32]))[0, 1]
    believed = np.corrcoef(-seconds[:32], np.log(before[:32]))[0, 1]
    assert told > 0.5 > 0 > believed

    cost_model.save(str(tmp_path / "state.npz"))
    fresh = live.cost_model(model)
    fresh.load(str(tmp_path / "state.npz"))
    assert np.allclose(fresh.predict(context, found), after)
    np.save(tmp_path / "array.npy", before)
    for content in (b"nothing", b"", (tmp_path / "array.npy").read_bytes()):
        (tmp_path / "state.npz").write_bytes(content)
        with pytest.raises(ModelError, match="holds no measurements"):
            fresh._inst.load(str(tmp_path / "state.npz"))


def test_a_tune_uses_it_and_its_scores_are_those_of_predict(
    model: Path, design: DesignSpace, target: str, tmp_path: Path
) -> None:
    cost_model = live.cost_model(model)
    ms.tune_tir(
        mod=design.module,
        target=tvm.target.Target(design.target),
        work_dir=str(tmp_path / "work"),
        max_trials_global=12,
        num_trials_per_iter=6,
        cost_model=cost_model,
        builder=BuilderHere(),
        runner=RunnerHere(),
        num_tuning_cores=1,
        strategy=ms.search_strategy.EvolutionarySearch(
            population_size=16, init_measured_ratio=0.2, init_min_unmeasured=8, genetic_num_iters=1
        ),
        seed=0,
    )
    warm = cost_model._inst
    assert len(warm.observed.log_throughput) >= 6
    assert np.isfinite(warm.observed.log_throughput).any()

    # The database that TVM wrote, through ``predict``: the same scores as of a fresh cost model.
    trained = load_throughput(model)
    with opened(tmp_path / "work") as dataset:
        rows = predict(trained, dataset).rows
        schedules = dict(dataset.candidates().select("candidate_id", "schedule").iter_rows())
    found, expected = [], []
    arguments = ms.arg_info.ArgInfo.from_entry_func(design.module, remove_preproc=True)
    for candidate, relative in rows.select("candidate_id", "relative_throughput").iter_rows():
        schedule = replay_trace(design.module, orjson.loads(schedules[candidate]))
        assert schedule is not None
        found.append(ms.MeasureCandidate(schedule, arguments))
        expected.append(relative)
    context = ms.TuneContext(
        mod=design.module, target=tvm.target.Target(design.target), num_threads=1
    )
    assert len(expected) >= 6
    assert np.allclose(live.cost_model(model).predict(context, found), expected)
