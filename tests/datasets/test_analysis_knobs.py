"""Which decisions matter, against what the definitions give by hand."""

from __future__ import annotations

import math

import loglines
import numpy as np
import pytest
from analysed_logs import MS, analysed, only_task
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f_oneway

from toolkit.datasets.analysis.knobs import one_way, sketch_knobs
from toolkit.datasets.analysis.result import KnobEffect
from toolkit.records import Task


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0.0, 3.0))
def test_one_way_is_omega_squared(seed, levels, strength):
    rng = np.random.default_rng(seed)
    codes = np.r_[np.arange(levels), rng.integers(levels, size=80)].astype(np.int64)
    y = strength * rng.standard_normal(levels)[codes] + rng.standard_normal(len(codes))
    found = one_way(codes, levels, y)
    assert found is not None
    f = float(f_oneway(*(y[codes == level] for level in range(levels))).statistic)
    k, n = levels, len(y)
    assert found.effect == pytest.approx(max((k - 1) * (f - 1) / ((k - 1) * (f - 1) + n), 0))
    means = np.array([y[codes == level].mean() for level in range(levels)])
    raw = 1 - math.exp(means.min() - np.median(means))
    # Shrinking never makes more of the best level than was measured.
    assert -1e-12 <= found.gain <= max(raw, 1 - math.exp(means.min() - y.mean())) + 1e-12


def test_chance_explains_nothing():
    rng = np.random.default_rng(0)
    effects = []
    for _ in range(200):
        codes = rng.integers(20, size=100).astype(np.int64)
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
        found = one_way(codes, int(codes.max()) + 1, rng.standard_normal(100))
        assert found is not None
        effects.append(found.effect)
    # Uncorrected, 19 of 99 degrees of freedom explain a fifth.
    assert np.mean(effects) < 0.05
    assert one_way(np.zeros(9, np.int64), 1, rng.standard_normal(9)) is None
    assert one_way(np.arange(9), 9, rng.standard_normal(9)) is None
    assert one_way(np.arange(9) % 3, 3, np.ones(9)) is None


def test_the_knob_that_matters_is_found(tmp_path):
    lines = []
    for n in range(256):
        y, x, k = 2 ** (n % 4), 2 ** (n // 4 % 8), 2 ** (n // 32)
        cost = math.exp(0.5 * abs(math.log2(x) - 5) + 0.02 * (y == 4) + 1e-3 * (k % 3)) * MS
        lines.append(loglines.autotvm(index=n, tiles=(y, x, k), costs=[cost], timestamp=n))
    found = analysed(tmp_path, loglines.write(tmp_path / "a.log", *lines))
    top, *others = only_task(found).knobs
    assert (top.knob, top.part, top.levels, top.candidates) == ("tile_x", None, 8, 256)
    assert top.effect > 0.99
    assert top.best_level == "· × 32"
    means = [0.5 * abs(i - 5) for i in range(8)]
    assert top.gain == pytest.approx(1 - math.exp(-float(np.median(means))), rel=0.01)
    assert all(other.effect < 0.01 for other in others)
    (row, *rest) = found.knobs
    assert (row.knob, row.tasks, row.top_in) == ("tile_x", 1, 1)
    assert row.workload == "dense_nopack.x86"
    assert all(other.top_in == 0 for other in rest)


def test_decisions_that_few_tasks_can_judge_come_last():
    def effect(knob: str, size: float) -> KnobEffect:
        return KnobEffect(knob, "tile", None, 4, 64, size, "1", size / 2)

    found = sketch_knobs(
        [
            ("t1", "s", [effect("rare", 0.9), effect("often", 0.2)]),
            ("t2", "s", [effect("often", 0.4)]),
            ("t3", "s", [effect("often", 0.3)]),
            ("t1", "", [effect("sketch", 0.5)]),
        ],
        {f"t{n}": Task(f"t{n}", "ansor", f"w{n // 2}", [], "llvm", "llvm") for n in (1, 2, 3)},
    )
    assert [(row.knob, row.tasks, row.top_in) for row in found] == [("often", 3, 2), ("rare", 1, 1)]
    assert (found[0].effect, found[0].gain, found[0].workload) == (0.3, 0.15, "w1")


def test_a_tile_of_too_many_values_is_judged_by_its_strongest_factor(tmp_path):
    lines = []
    for n in range(64):
        inner, middle = 2 ** (n % 4), 2 ** (n // 4 % 8)
        entity = ["tile_f", "sp", [-1, n // 32 + 1, middle, inner]]
        cost = math.exp(abs(math.log2(inner) - 2)) * MS
        lines.append(
            loglines.autotvm(
                index=n, tiles=(1, 1, 1), costs=[cost], timestamp=n, extra=[list(entity)]
            )
        )
    found = analysed(tmp_path, loglines.write(tmp_path / "a.log", *lines))
    (top,) = (effect for effect in only_task(found).knobs if effect.knob == "tile_f")
    assert (top.part, top.levels, top.best_level) == (3, 4, "4")
    assert top.effect > 0.99
