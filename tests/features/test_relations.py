"""Relations of loop contexts: the conformance suite, values worked out by hand, brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import loglines
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.datasets import ingest, open_dataset
from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.knobs import KnobsExtractor
from toolkit.features.extractors.relations import (
    OPERANDS,
    SAMPLES,
    RelationsExtractor,
    contexts,
    loop_order,
    sample,
    tiling_of,
)
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.operation import ROLES, Operation
from toolkit.records import Knob, Sketch, Task
from toolkit.testing import ExtractorConformance

AUTOTVM = [loglines.autotvm(i, tiles) for i, tiles in enumerate([(4, 8, 2), (2, 8, 4), (8, 4, 1)])]
ANSOR = [
    loglines.ansor(loglines.ansor_steps(tile=tile)) for tile in ((1, 2, 4), (2, 2, 4), (4, 2, 1))
]
METASCHEDULE = [
    loglines.metaschedule(0, loglines.trace(tile=tile))
    for tile in ((8, 4, 2), (2, 4, 8), (1, 8, 8))
]

CURVES = {
    "reuse_by_touched": 1,
    "touched_by_reuse": 1,
    "outside_by_touched": -1,
    "touched_by_outside": -1,
}
"""Names of the curves, and whether they rise or fall."""

FACTOR = st.sampled_from([1, 2, 3, 4, 7, 8, 32])


def matrix_product(rows: list[int], columns: list[int], depth: list[int]) -> Tiling:
    """One candidate of a matrix product with these tiles, outermost first, on a processor."""
    tiles = {"w": rows, "co": columns, "ci": depth}
    factors = {role: [np.array([float(part)]) for part in tiles[role]] for role in tiles}
    operation = Operation("matmul", {role: math.prod(tiles[role]) for role in tiles})
    return Tiling(operation, factors, gpu=False, rows=1)


def group_of(lines: list[Any], folder: Path) -> CandidateGroup:
    """Candidates of a log as a dataset gives them."""
    folder.mkdir(exist_ok=True)
    if "input" in lines[0] or "i" in lines[0]:
        log = loglines.write(folder / "log.json", *lines)
    else:
        loglines.write(folder / "database_workload.json", loglines.workload())
        log = loglines.write(folder / "database_tuning_record.json", *lines)
    ingest(log, folder / "dataset")
    ((group, _),) = open_dataset(folder / "dataset").groups()
    return group


def columns_of(group: CandidateGroup) -> dict[str, np.ndarray[Any, Any]]:
    block = RelationsExtractor().extract(group)
    return dict(zip(block.columns, block.values.T, strict=True))


class TestRelations(ExtractorConformance):
    @pytest.fixture(params=[AUTOTVM, ANSOR, METASCHEDULE], ids=["autotvm", "ansor", "metaschedule"])
    def group(self, request: pytest.FixtureRequest, tmp_path: Path) -> CandidateGroup:
        return group_of(request.param, tmp_path)

    @pytest.fixture
    def plugin(self) -> Any:
        return RelationsExtractor

    def test_every_format_has_the_same_columns(self, group: CandidateGroup) -> None:
        columns = columns_of(group)
        # Nothing else: no size of the operation, no name, nothing of the machine.
        assert len(columns) == len(OPERANDS) * len(CURVES) * SAMPLES
        assert all(name.startswith(OPERANDS) for name in columns)
        absent = {name for name, values in columns.items() if np.isnan(values).any()}
        # The trace splits one loop, and tells nothing of weights.
        weights = {name for name in columns if name.startswith("weight")}
        assert absent == (weights if group.task.format == "metaschedule" else set())

    def test_curves_go_one_way(self, group: CandidateGroup) -> None:
        columns = columns_of(group)
        for operand in ("data", "out"):
            for name, way in CURVES.items():
                curve = np.stack([columns[f"{operand}_{name}_{t:02}"] for t in range(SAMPLES)])
                assert (np.diff(curve, axis=0) * way >= 0).all(), name


def test_a_matrix_product_by_hand() -> None:
    # Loops, outermost first: rows 4, columns 2, depth 8, depth 4, rows 2, columns 16.
    tiling = matrix_product([4, 2], [2, 16], [8, 4])
    assert loop_order(tiling) == [
        ("w", 0), ("co", 0), ("ci", 0), ("ci", 1), ("w", 1), ("co", 1),
    ]  # fmt: skip
    touched, reuse, outside = contexts(tiling)
    data, weight, out = touched[..., 0].tolist()
    assert data == [1, 1, 2, 8, 64, 64, 256]
    assert weight == [1, 16, 16, 64, 512, 1024, 1024]
    assert out == [1, 16, 32, 32, 32, 64, 256]
    assert reuse[0, :, 0].tolist() == [1, 16, 16, 16, 16, 32, 32]
    assert reuse[2, :, 0].tolist() == [1, 1, 1, 4, 32, 32, 32]
    assert outside[:, 0].tolist() == [8192, 512, 256, 64, 8, 4, 1]
    by_touched = sample(touched[0], reuse[0], np.max)[:, 0].tolist()
    assert by_touched == [4] * 6 + [5] * 14  # 64 elements are reused 32 times
    by_outside = sample(outside, touched[1], np.min)[:, 0].tolist()
    assert by_outside == [10, 10, 10, 9, 9, 9, 6, 6, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("gpu", "spatial", "reduction", "order"),
    [
        (False, 4, 2, "w0 w1 ci0 w2 ci1 w3"),
        (False, 2, 2, "w0 ci0 ci1 w1"),
        (False, 1, 1, "w0 ci0"),
        (True, 5, 3, "w0 w1 w2 ci0 ci1 w3 ci2 w4"),
        (True, 4, 2, "w0 w1 w2 ci0 ci1 w3"),
        (True, 3, 2, "w0 w1 ci0 ci1 w2"),
        (True, 1, 0, "w0"),
        (False, 0, 2, "ci0 ci1"),
        (False, 0, 0, ""),
    ],
)
def test_loops_lie_as_multi_level_tiling_orders_them(
    gpu: bool, spatial: int, reduction: int, order: str
) -> None:
    counts = {"w": spatial, "ci": reduction}
    factors = {role: [np.ones(1)] * count for role, count in counts.items() if count}
    tiling = Tiling(Operation("matmul"), factors, gpu=gpu, rows=1)
    assert " ".join(f"{role}{level}" for role, level in loop_order(tiling)) == order


def test_cuts_of_a_processor_s_tiles_are_loops_of_the_nest() -> None:
    tiling = matrix_product([3, 2, 4, 2], [2, 2, 1, 16], [8, 4])
    touched, _, _ = contexts(tiling)
    found = {tuple(level) for level in touched[..., 0].T.tolist()}
    for cut in tiling.cuts().values():
        elements = tiling.operation.elements(tiling.inside(*cut))
        assert tuple(float(x[0]) for x in elements) in found


def test_ansor_s_steps_and_autotvm_s_knobs_give_the_tiles_of_their_nest(tmp_path: Path) -> None:
    ansor = tiling_of(group_of(ANSOR[:1], tmp_path / "ansor"))
    by_hand = matrix_product([8, 1, 2, 4], [6, 1, 2, 8], [8, 4])
    for one, other in zip(contexts(ansor), contexts(by_hand), strict=True):
        assert one.tolist() == other.tolist()
    group = group_of(AUTOTVM, tmp_path / "autotvm")
    factors = KnobsExtractor().extract(group)
    mine = tiling_of(group).factors
    for role in ("w", "co", "ci"):
        for level, name in ((0, f"tile_{role}_l0"), (-1, f"tile_{role}_reg")):
            expected = factors.values[:, factors.columns.index(name)]
            assert mine[role][level].tolist() == expected.tolist()


def test_lanes_along_the_depth_lie_innermost(tmp_path: Path) -> None:
    tiling = tiling_of(group_of(AUTOTVM, tmp_path))
    assert loop_order(tiling)[-1] == ("ci", 1)
    assert loop_order(tiling)[:2] == [("w", 0), ("co", 0)]


tiles = st.lists(FACTOR, min_size=2, max_size=4)


@given(tiles, tiles, st.lists(FACTOR, min_size=1, max_size=2))
def test_curves_agree_with_a_loop_over_the_nest(
    rows: list[int], columns: list[int], depth: list[int]
) -> None:
    tiling = matrix_product(rows, columns, depth)
    touched, reuse, outside = contexts(tiling)
    order, nest = loop_order(tiling), []
    for k in range(len(order) + 1):
        size = dict.fromkeys(ROLES, 1)
        around = 1
        for place, (role, level) in enumerate(order):
            extent = int(tiling.factors[role][level][0])
            if place >= len(order) - k:
                size[role] *= extent
            else:
                around *= extent
        w, co, ci = size["w"], size["co"], size["ci"]
        nest.append(((w * ci, co * ci, w * co), w * co * ci, around))
    for place in range(3):
        by_touched = sample(touched[place], reuse[place], np.max)[:, 0]
        by_reuse = sample(reuse[place], touched[place], np.max)[:, 0]
        entered = sample(touched[place], outside, np.min)[:, 0]
        smallest = sample(outside, touched[place], np.min)[:, 0]
        for t in range(SAMPLES):
            own = [(each[place], steps / each[place], around) for each, steps, around in nest]
            assert by_touched[t] == math.log2(max(r for e, r, _ in own if e <= 2**t))
            assert by_reuse[t] == math.log2(max(e for e, r, _ in own if r <= 2**t))
            assert entered[t] == math.log2(min(o for e, _, o in own if e <= 2**t))
            assert smallest[t] == math.log2(min(e for e, _, o in own if o <= 2**t))


@given(tiles, tiles)
def test_loops_of_one_iteration_change_no_curve(rows: list[int], columns: list[int]) -> None:
    plain, padded = matrix_product(rows, columns, [4]), matrix_product(rows, columns, [1, 4])
    levels = max(len(rows), len(columns))
    padded = replace(padded, factors={"n": [np.ones(1)] * levels, **padded.factors})
    assert len(loop_order(padded)) == len(loop_order(plain)) + levels + 1
    (touched, _, outside), (own, _, around) = contexts(plain), contexts(padded)
    for place in range(3):
        one = sample(touched[place], outside, np.min)
        assert one.tolist() == sample(own[place], around, np.min).tolist()


def test_an_unknown_extent_leaves_what_it_cannot_change() -> None:
    tiling = matrix_product([1, 2], [2, 16], [8, 4])
    tiling.factors["w"][0][:] = np.nan
    touched, reuse, outside = contexts(tiling)
    curve = sample(touched[0], reuse[0], np.max)[:, 0]
    assert curve[:6].tolist() == [4, 4, 4, 4, 4, 4]  # 64 elements are inside of it
    assert np.isnan(curve[6:]).all()
    assert np.isnan(sample(touched[0], outside, np.min)).all()


def test_what_tells_no_extent_has_no_curve() -> None:
    task = Task("t", "autotvm", "my_own", [1, "x", None], "llvm", "llvm")
    sketch = Sketch("s", "autotvm", "[]", (Knob("tile_q", "tile", 0, 2),))
    columns = columns_of(CandidateGroup(task, sketch, np.array([[0, 8], [0, 3]])))
    assert len(columns) == len(OPERANDS) * len(CURVES) * SAMPLES
    assert all(np.isnan(values).all() for values in columns.values())


def test_an_operand_that_is_not_read_is_absent() -> None:
    factors = {"w": [np.full(2, 64.0)], "ci": [np.full(2, 32.0)]}
    operation = Operation("reduction", {"w": 64, "ci": 32})
    touched, reuse, _ = contexts(Tiling(operation, factors, gpu=False, rows=2))
    assert np.isnan(touched[1]).all()
    assert np.isnan(reuse[1]).all()
    assert np.isfinite(touched[[0, 2]]).all()
