"""Weights are packed as TVM packs them, and a network's functions are compiled once each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from toolkit.live.measure.machine import tvm_target
from toolkit.networks.codegen.library import LIBRARY, write_network
from toolkit.networks.codegen.objects import ObjectFiles
from toolkit.networks.codegen.packing import moved
from toolkit.networks.codegen.storage import network_pipeline
from toolkit.networks.run_network import Network, random_inputs
from toolkit.networks.selection import read_records, scheduled
from toolkit.networks.tasks import network_of

pytestmark = pytest.mark.live

HEAD = """# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main({parameters}):
"""
NEST = """    for {loops} in T.grid({extents}):
        with T.sblock("b{number}"):
            {variables} = T.axis.remap("{kinds}", [{loops}])
            B{number}[{indices}] = {value}
"""


def packing(
    nests: list[tuple[list[int], list[int], list[str]]], value: str = "A{n}[{v}]", cut: int = 0
) -> Any:
    """A function that stores each input's elements: nests of (shape, output's shape, indices)."""
    parameters, body = [], ""
    for letter, which in (("A", 0), ("B", 1)):
        parameters += [
            f'{letter}{n}: T.Buffer(({", ".join(map(str, nest[which]))},), "float32")'
            for n, nest in enumerate(nests)
        ]
    for number, (shape, _, indices) in enumerate(nests):
        variables = ", ".join(f"v{i}" for i in range(len(shape)))
        body += NEST.format(
            number=number,
            # A comma: one variable alone would be no list.
            loops=", ".join(f"i{i}" for i in range(len(shape))),
            extents=", ".join(str(extent - cut) for extent in shape),
            variables=variables,
            kinds="S" * len(shape),
            indices=", ".join(indices),
            value=value.format(n=number, v=variables),
        )
    text = HEAD.format(parameters=", ".join(parameters)) + body
    return tvm.script.from_source(text, {"T": tvm.script.tirx})


def stored(array: Any, shape: list[int], indices: list[str]) -> Any:
    """What such a nest leaves, by NumPy's own indexing."""
    values = {f"v{i}": v for i, v in enumerate(np.indices(array.shape))}
    result = np.full(shape, np.nan, dtype=array.dtype)
    result[tuple(eval(index, values) + np.zeros(array.shape, int) for index in indices)] = array
    return result


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int], list[str]]:
    """A shape, and its dimensions' digits in another order, some of them joined."""
    parts = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1,
                          max_size=3))  # fmt: skip
    digits = []
    for dimension, extents in enumerate(parts):
        below = math.prod(extents)
        for extent in extents:
            above, below = below, below // extent
            index = f"v{dimension}" if above == math.prod(extents) else f"v{dimension} % {above}"
            digits.append((extent, f"({index}) // {below}"))
    order = draw(st.permutations(digits))
    cuts = sorted(draw(st.sets(st.integers(1, len(order) - 1)))) if len(order) > 1 else []
    shape, indices = [], []
    for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
        index = "0"
        for extent, digit in order[begin:end]:
            index = f"({index}) * {extent} + {digit}"
        shape.append(math.prod(extent for extent, _ in order[begin:end]))
        indices.append(index)
    return [math.prod(extents) for extents in parts], shape, indices


@given(st.lists(layouts(), min_size=1, max_size=2))
def test_elements_stand_where_the_schedule_wants_them(
    nests: list[tuple[list[int], list[int], list[str]]],
) -> None:
    arrays = [np.random.default_rng(0).random(shape, np.float32) for shape, _, _ in nests]
    found = moved(packing(nests), arrays)
    assert found is not None
    for array, result, (_, shape, indices) in zip(arrays, found, nests, strict=True):
        np.testing.assert_array_equal(result, stored(array, shape, indices))


PLAIN = ([4, 6], [6, 4], ["v1", "v0"])


@pytest.mark.parametrize(
    "function",
    [
        packing([PLAIN], value='A{n}[{v}] * T.float32(2)'),
        packing([PLAIN], value="A{n}[v0, v1 // 2]"),
        packing([PLAIN], cut=1),
        # Dimensions have part in one digit together, and an element twice in one place.
        packing([([4, 6], [4, 6], ["(v0 * 6 + v1) // 6", "(v0 * 6 + v1) % 6"])]),
        packing([([4, 6], [24], ["v0 + v1"])]),
        packing([([4, 6], [5, 6], ["v0 + 1", "v1"])]),
        packing([([4, 6], [5, 6], ["v0", "v1"])]),
    ],
)  # fmt: skip
def test_what_does_more_than_move_elements_is_left_to_tvm(function: Any) -> None:
    assert moved(function, [np.zeros((4, 6), np.float32)]) is None


def test_a_function_is_compiled_once_for_all_builds_that_have_it(
    model_file: Path, tuned: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = network_of(str(model_file), target)
    records = read_records(graph, tuned, target)
    modules = [scheduled(graph, records, target)]
    del records.chosen[next(iter(records.chosen))]
    modules.append(scheduled(graph, records, target))
    compiled: list[str] = []
    build = tvm.tirx.build

    def counting(module: tvm.IRModule, **options: Any) -> Any:
        compiled.extend(name.name_hint for name in module.get_global_vars())
        return build(module, **options)

    monkeypatch.setattr(tvm.tirx, "build", counting)
    counts = []
    with ObjectFiles(target) as objects:
        for number, module in enumerate([*modules, modules[0]]):
            (tmp_path / str(number)).mkdir()
            write_network(module, target, tmp_path / str(number), objects)
            counts.append(len(compiled))
    assert len(set(compiled)) > 3
    # One function has another program in the second build; the third is the first again.
    assert counts[0] < counts[1] < 2 * counts[0] and counts[2] == counts[1]

    monkeypatch.undo()
    t = relax.transform
    passes = [t.SplitLayoutRewritePreproc(), t.LiftTransformParams(), t.FoldConstant()]
    with tvm_target(target) as made:
        packed = tvm.transform.Sequential([*passes, t.DeadCodeElimination()])(modules[0])
        usual = tvm.compile(packed, target=made, relax_pipeline=network_pipeline(made))
        usual.export_library(str(tmp_path / "0" / LIBRARY))
    outputs = []
    for folder in ("0", "1", "2"):
        network = Network(tmp_path / folder)
        outputs.append(network(*random_inputs(network.inputs)))
    for theirs, other, ours in zip(*outputs, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(other, theirs, rtol=1e-5, atol=1e-7)
