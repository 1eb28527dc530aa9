"""Knob features against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.knobs import KnobsExtractor
from toolkit.features.task.autotvm_operation import autotvm_operation
from toolkit.features.task.hardware import vector_bytes
from toolkit.features.task.operation import dtype_bytes
from toolkit.records import Knob, Sketch, Task


def conv_task(name: str = "conv2d_NCHWc.x86", stride: int = 2) -> Task:
    arguments = [
        ["TENSOR", [1, 64, 56, 56], "float32"],
        ["TENSOR", [128, 64, 3, 3], "float32"],
        [stride, stride],
        [1, 1, 1, 1],
        [1, 1],
        "NCHW",
        "NCHW",
        "float32",
    ]
    return Task("t", "autotvm", name, arguments, "llvm -mcpu=core-avx2", "llvm")


SKETCH = Sketch(
    "s",
    "autotvm",
    "[]",
    (
        Knob("tile_ic", "tile", 0, 2),
        Knob("tile_oc", "tile", 2, 2),
        Knob("tile_ow", "tile", 4, 2),
        Knob("unroll_kw", "categorical", 6, 1),
    ),
)


def test_a_convolution_in_numbers() -> None:
    operation = autotvm_operation(conv_task())
    assert operation.family == "conv"
    assert dict(operation.extents) == {
        "n": 1,
        "co": 128,
        "h": 28,
        "w": 28,
        "ci": 64,
        "kh": 3,
        "kw": 3,
    }
    assert operation.flops == 2 * 128 * 28 * 28 * 64 * 9


@pytest.mark.parametrize(
    ("name", "arguments", "extents"),
    [
        (
            "dense_pack.x86",
            [["TENSOR", [1, 768], "float32"], ["TENSOR", [3072, 768], "float32"], None, "float32"],
            {"w": 1, "co": 3072, "ci": 768},
        ),
        (
            "batch_matmul.x86",
            [["TENSOR", [12, 128, 64], "float32"], ["TENSOR", [12, 96, 64], "float32"]],
            {"n": 12, "w": 128, "co": 96, "ci": 64},
        ),
        (
            "conv2d_nchw.cuda",
            [
                ["TENSOR", [128, 3, 230, 230], "float32"],
                ["TENSOR", [64, 3, 7, 7], "float32"],
                2,
                "VALID",
                1,
                "float32",
            ],
            {"n": 128, "co": 64, "h": 112, "w": 112, "ci": 3, "kh": 7, "kw": 7},
        ),
        (
            "depthwise_conv2d_nchw.cuda",
            [
                ["TENSOR", [1, 96, 14, 14], "float32"],
                ["TENSOR", [96, 1, 5, 5], "float32"],
                1,
                "SAME",
                1,
                "float32",
            ],
            {"n": 1, "co": 96, "h": 14, "w": 14, "ci": 1, "kh": 5, "kw": 5},
        ),
        (  # Its kernel has the input's channels first.
            "conv2d_transpose_nchw.cuda",
            [
                ["TENSOR", [1, 64, 8, 8], "float32"],
                ["TENSOR", [64, 32, 4, 4], "float32"],
                [2, 2],
                [1, 1, 1, 1],
                "float32",
                [0, 0],
            ],
            {"n": 1, "co": 32, "h": 16, "w": 16, "ci": 64, "kh": 4, "kw": 4},
        ),
        (  # Five axes, none of them a block of channels.
            "conv3d_ncdhw.cuda",
            [
                ["TENSOR", [1, 16, 8, 28, 28], "float32"],
                ["TENSOR", [32, 16, 3, 3, 3], "float32"],
                [1, 1, 1],
                [1, 1, 1],
                [1, 1, 1],
                "float32",
            ],
            {},
        ),
        (
            "conv2d_hwcn.cuda",
            [
                ["TENSOR", [14, 14, 256, 8], "float32"],
                ["TENSOR", [3, 3, 256, 512], "float32"],
                1,
                1,
                1,
                "float32",
            ],
            {},
        ),
    ],
)
def test_operations_by_template(
    name: str, arguments: list[object], extents: dict[str, int]
) -> None:
    task = Task("t", "autotvm", name, arguments, "llvm", "llvm")
    assert dict(autotvm_operation(task).extents) == extents


@pytest.mark.parametrize(
    ("name", "size"),
    [("float32", 4), ("bfloat16", 2), ("uint8", 1), ("float8_e4m3fn", 1), ("e5m2_float8", 1)],
)
def test_bytes_of_an_element(name: str, size: int) -> None:
    assert dtype_bytes(name) == size


def test_an_unknown_template_is_no_error() -> None:
    task = Task("t", "autotvm", "my_own", [1, "x", None], "llvm", "llvm")
    sketch = Sketch("s", "autotvm", "[]", (Knob("tile_q", "tile", 0, 2),))
    group = CandidateGroup(task, sketch, np.array([[0, 8], [0, 3]]))
    block = KnobsExtractor().extract(group)
    values = dict(zip(block.columns, block.values.T, strict=True))
    assert values["knob_tile_q_l1"].tolist() == [8, 3]
    assert values["inner_volume"].tolist() == [8, 3]
    assert values["share_of_powers"].tolist() == [1, 0]


def test_footprints_of_a_register_tile() -> None:
    decisions = np.array([[4, 16, 0, 32, 0, 7, 1]])
    block = KnobsExtractor().extract(CandidateGroup(conv_task(), SKETCH, decisions))
    values = {name: float(v) for name, v in zip(block.columns, block.values[0], strict=True)}
    assert values["tile_co_l0"] == 4  # derived: 128 / 32
    assert values["tile_w_reg"] == 7
    assert values["reg_accumulators"] == 4 * 7  # 32 channels are four vectors of 8 floats
    assert values["reg_out_bytes"] == 32 * 7 * 4
    # core: 16 input channels, the whole 3 x 3 kernel has one level and lies outside of it
    assert values["core_data_bytes"] == 16 * 1 * (6 * 2 + 1) * 4
    assert values["core_weight_bytes"] == 32 * 16 * 4
    assert values["unroll_body"] == 3
    assert values["flops"] == 2 * 128 * 28 * 28 * 64 * 9


def test_parallel_loop_and_registers_of_an_x86_template() -> None:
    decisions = np.array([[4, 16, 0, 32, 0, 5, 1]])
    block = KnobsExtractor().extract(CandidateGroup(conv_task(), SKETCH, decisions))
    values = {name: float(v) for name, v in zip(block.columns, block.values[0], strict=True)}
    assert values["parallel_extent"] == 1 * (128 / 32) * 28  # images, channel blocks, rows
    assert values["parallel_fill_16"] == 1.0  # 112 rows are seven rounds
    assert values["parallel_fill_32"] == pytest.approx(112 / 128)
    # one iteration: a row of 32 channels, over three rows of all 64 inputs; six tiles of five
    # columns overhang the row of 28
    assert values["task_weight_bytes"] == 32 * 64 * 9 * 4
    assert values["task_data_bytes"] == 64 * 3 * (29 * 2 + 3) * 4
    assert values["ragged"] == pytest.approx(30 / 28)
    assert values["accumulators_128"] == 8 * 5
    assert values["accumulators_512"] == 2 * 5
    assert values["loads_per_fma_128"] == pytest.approx((8 + 5) / (8 * 5))
    assert values["body_vectors"] == 8 * 5 * 3  # three kernel columns unrolled
    assert values["ci_over_co_reg"] == 16 / 32
    assert values["point_stride_bytes"] == 16 * 4 * 2
    # 28 rows of outputs with stride 2 read 27 * 2 + 3 rows, once for each of four blocks.
    assert values["plane_bytes"] == 16 * 57 * 57 * 4
    assert values["shared_plane_bytes"] == values["plane_bytes"]


def test_threads_of_an_x86_template_where_the_target_says_how_many() -> None:
    decisions = np.array([[4, 16, 0, 32, 0, 7, 1]])
    task = replace(conv_task(), target="llvm -mcpu=core-avx2 -num-cores=3")
    block = KnobsExtractor().extract(CandidateGroup(task, SKETCH, decisions))
    values = {name: float(v) for name, v in zip(block.columns, block.values[0], strict=True)}
    # 4 blocks of channels by 28 rows on three cores: 38 iterations, all rows of two blocks
    assert values["thread_rounds"] == 38
    assert values["thread_balance"] == pytest.approx(112 / 114)
    assert values["serial_over_ideal"] == pytest.approx(114 / 112)
    assert values["thread_weight_bytes"] == 2 * 32 * 64 * 9 * 4
    assert values["thread_data_bytes"] == 64 * 57 * 57 * 4
    unsaid = KnobsExtractor().extract(CandidateGroup(conv_task(), SKETCH, decisions))
    assert np.isnan(unsaid.values[0, unsaid.columns.index("thread_balance")])


@pytest.mark.parametrize("template", ["dense_nopack.x86", "batch_matmul.x86"])
def test_lanes_along_the_depth(template: str) -> None:
    data, weight = [128, 768], [96, 768]
    if "batch" in template:
        data, weight = [12, *data], [12, *weight]
    arguments = [["TENSOR", data, "float32"], ["TENSOR", weight, "float32"]]
    task = Task("t", "autotvm", template, arguments, "llvm -mcpu=core-avx2", "llvm")
    knobs = (
        Knob("tile_y", "tile", 0, 2),
        Knob("tile_x", "tile", 2, 2),
        Knob("tile_k", "tile", 4, 2),
    )
    decisions = np.array([[0, 4, 0, 3, 0, 24]])  # 4 rows, 3 columns, 24 of the depth
    block = KnobsExtractor().extract(
        CandidateGroup(task, Sketch("s", "autotvm", "[]", knobs), decisions)
    )
    values = {name: float(v) for name, v in zip(block.columns, block.values[0], strict=True)}
    # A partial sum of each point, 24 floats wide: three vectors of 8.
    assert values["reg_accumulators"] == 3 * 4 * 3
    assert values["accumulators_512"] == 2 * 4 * 3
    assert values["reg_vector_fill"] == values["last_fill"] == 1.0
    assert values["last_reg"] == 24
    # Each vector of a row and of a column is loaded once for all points.
    assert values["loads_per_fma_128"] == pytest.approx((4 + 3) / (4 * 3))


def test_a_batched_product_unrolls_a_short_loop_over_the_depth() -> None:
    arguments = [["TENSOR", [12, 128, 128], "float32"], ["TENSOR", [12, 64, 128], "float32"]]
    knobs = (
        Knob("tile_y", "tile", 0, 2),
        Knob("tile_x", "tile", 2, 2),
        Knob("tile_k", "tile", 4, 2),
    )
    sketch = Sketch("s", "autotvm", "[]", knobs)
    # 16 steps of 8, then 32 of 4 and 18 of 7: what is derived (0) counts like what is written.
    decisions = np.array([[0, 4, 0, 1, 0, 8], [0, 4, 0, 1, 32, 4], [0, 4, 0, 1, 0, 7]])
    columns = {}
    for template in ("batch_matmul.x86", "batch_matmul.cuda"):
        task = Task("t", "autotvm", template, arguments, "llvm -mcpu=core-avx2", "llvm")
        block = KnobsExtractor().extract(CandidateGroup(task, sketch, decisions))
        columns[template] = dict(zip(block.columns, block.values.T.tolist(), strict=True))
    assert columns["batch_matmul.x86"]["unroll_body"] == [16, 1, 1]
    # Four rows of one column, two vectors of four floats (or one) a step.
    assert columns["batch_matmul.x86"]["body_vectors"] == [4 * 2 * 16, 4, 4 * 2]
    assert "unroll_body" not in columns["batch_matmul.cuda"]


def test_a_block_of_channels_is_no_depth_of_a_depthwise_convolution() -> None:
    arguments = [
        ["TENSOR", [1, 64, 56, 56], "float32"],
        ["TENSOR", [64, 1, 3, 3], "float32"],
        [1, 1],
        [1, 1, 1, 1],
        [1, 1],
    ]
    name = "depthwise_conv2d_NCHWc.x86"
    task = Task("t", "autotvm", name, arguments, "llvm -mcpu=core-avx2", "llvm")
    decisions = np.array([[0, 16, 0, 32, 0, 7, 1], [0, 16, 0, 8, 0, 7, 1]])
    block = KnobsExtractor().extract(CandidateGroup(task, SKETCH, decisions))
    shared = block.values[:, block.columns.index("shared_plane_bytes")]
    assert shared.tolist() == [0, 16 * 58 * 58 * 4]  # one block of outputs reads it, or two
    values = {name: float(v) for name, v in zip(block.columns, block.values[0], strict=True)}
    assert values["core_volume"] == 32 * 7 * 3 * 3
    assert values["ragged"] == 1.0
    assert values["ci_over_co_reg"] == 16 / 32
    assert values["point_stride_bytes"] == 16 * 4
    assert values["plane_bytes"] == 16 * 58 * 58 * 4


def test_generic_x86_has_vectors_of_128_bits() -> None:
    assert vector_bytes(replace(conv_task(), target="llvm -keys=cpu ")) == 16
    assert vector_bytes(conv_task()) == 32
    # An option without a value takes none of the next one's.
    flagged = "llvm --system-lib -mcpu=skylake-avx512 -num-cores 4"
    assert vector_bytes(replace(conv_task(), target=flagged)) == 64


@pytest.mark.parametrize(
    ("cpu", "width"),
    [
        ("x86-64-v2", 16),
        ("goldmont_plus", 16),
        ("x86-64-v3", 32),
        ("skylake", 32),
        ("znver3", 32),
        ("alderlake", 32),
        ("skylake-avx512", 64),
        ("icelake-server", 64),
        ("rocketlake", 64),
        ("graniterapids-d", 64),
        ("x86-64-v4", 64),
        ("znver5", 64),
    ],
)
def test_the_processor_says_how_wide_its_vectors_are(cpu: str, width: int) -> None:
    assert vector_bytes(replace(conv_task(), target=f"llvm -mcpu={cpu}")) == width


def test_it_is_a_pure_function_of_each_candidate() -> None:
    rng = np.random.default_rng(0)
    decisions = np.stack([rng.integers(1, 9, 20) for _ in range(7)], axis=1)
    whole = KnobsExtractor().extract(CandidateGroup(conv_task(), SKETCH, decisions))
    half = KnobsExtractor().extract(CandidateGroup(conv_task(), SKETCH, decisions[10:]))
    assert whole.columns == half.columns
    assert np.array_equal(whole.values[10:], half.values, equal_nan=True)
