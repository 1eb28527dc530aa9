"""Model files become graphs that compute the same and hold nothing that passes stop at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import pytest
from running import here

from tests.networks.conftest import difference_from_onnxruntime, outputs, save_model, small_model
from toolkit.errors import LiveError
from toolkit.networks.graph.concatenation import convolve_before_concatenation
from toolkit.networks.graph.constants import fold_constants
from toolkit.networks.graph.prepare import operators, prepare
from toolkit.networks.graph.relax_rewrites import activations
from toolkit.networks.importing.files import load_model, read_onnx
from toolkit.networks.tasks import network_of, tasks_of

pytestmark = pytest.mark.live


def run_onnx(model: object, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, {"x": x})
    return result


@pytest.mark.parametrize("ir_version", [3, 8])
def test_what_is_rewritten_computes_the_same(tmp_path: Path, ir_version: int) -> None:
    before = small_model(ir_version=ir_version)
    path = tmp_path / "small.onnx"
    path.write_bytes(before.SerializeToString())
    after = read_onnx(path, {})
    kinds = {node.op_type for node in after.graph.node}
    assert not kinds & {"Sum", "Clip", "Dropout", "BatchNormalization"}
    assert [value.name for value in after.graph.input] == ["x"]
    x = np.random.default_rng(1).normal(0, 3, (1, 3, 12, 12)).astype("float32")
    np.testing.assert_allclose(run_onnx(after, x), run_onnx(before, x), rtol=1e-5, atol=1e-6)


def test_an_open_shape_is_named_with_its_cure_and_can_be_given(tmp_path: Path, target: str) -> None:
    path = tmp_path / "open.onnx"
    path.write_bytes(small_model(batch="n").SerializeToString())
    with pytest.raises(LiveError, match=r"--shape x=1,3,12,12"):
        load_model(path)
    with pytest.raises(LiveError, match="no input 'data'"):
        load_model(path, {"data": [1, 3, 12, 12]})
    module = load_model(path, {"x": [2, 3, 12, 12]})
    assert [int(e) for e in module["main"].params[0].ty.shape.values] == [2, 3, 12, 12]


def test_layouts(model_file: Path, target: str) -> None:
    module = load_model(model_file)
    last = prepare(module, target, "small", "NHWC")
    first = prepare(module, target, "small", "NCHW")
    assert (last.layout, first.layout) == ("NHWC", "NCHW")
    assert prepare(module, target, "small").layout == "NHWC"
    # The input is the only transpose that a small network keeps, beside that of its end.
    assert operators(module)["relax.permute_dims"] <= 2
    assert last.weight_bytes >= 4 * (8 * 3 * 9 + 64 + 40)


def test_reshapes_are_no_tasks_and_relu6_is_fused(model_file: Path, target: str) -> None:
    names = [task.name for task in tasks_of([str(model_file)], target)]
    assert not [name for name in names if "reshape" in name.split(":")[1].split("_")[0]]
    (first,) = [name for name in names if "conv2d" in name and "clip" in name]
    assert "relu" not in first
    assert "subtract" not in first


def test_functions_of_a_network_are_collected_and_found_again(
    model_file: Path, tmp_path: Path
) -> None:
    command = ("collect", "--workload", str(model_file), "--threads", "1", "--trials", "1")
    code, said, err = here(*command, "--json", cwd=tmp_path)
    assert code == 0, err
    rows = orjson.loads(said)["workloads"]
    assert [row["records"] for row in rows] == [1] * len(rows)
    assert here("ingest", "tuning/collected", cwd=tmp_path)[0] == 0
    command = ("lookup", "--workload", str(model_file), "--threads", "1", "--json")
    code, said, err = here(*command, cwd=tmp_path)
    assert code == 0, err
    found = orjson.loads(said)
    # What was collected is what is tuned: every function, by the same name.
    assert [row["name"] for row in rows] == [row["name"] for row in found["tasks"]]
    assert found["missing"] == 0 and found["covered"] == len(rows) > 2


def test_what_tvm_does_not_import_is_named(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Strange", ["x"], ["y"], domain="somebody.else")],
        "strange",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    onnx.save(made, str(tmp_path / "strange.onnx"))
    with pytest.raises(LiveError, match="Strange"):
        load_model(tmp_path / "strange.onnx")


@pytest.mark.parametrize("elementwise", [False, True])
def test_a_concatenation_is_copies_unless_it_fuses(
    tmp_path: Path, target: str, elementwise: bool
) -> None:
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    shapes = (("w1", (4, 3, 1, 1)), ("w2", (8, 3, 3, 3)), ("w3", (6, 12, 3, 3)))
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype("float32"), name)
        for name, shape in shapes
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["p"]),
        helper.make_node("Conv", ["x", "w2"], ["q"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["p", "q"], ["j"], axis=1),
        helper.make_node("Relu", ["j"], ["k"]) if elementwise
        else helper.make_node("MaxPool", ["j"], ["k"], kernel_shape=[1, 1]),
        helper.make_node("Conv", ["k", "w3"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
    ]  # fmt: skip
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 4, 4])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])]
    graph = helper.make_graph(nodes, "joined", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = 8
    path = tmp_path / "joined.onnx"
    save(made, str(path))
    (task,) = [one for one in tasks_of([str(path)], target) if "concat" in one.name]
    # TVM's own asks at each element which input it is of; the copies do not.
    assert ("if_then_else" in task.module.script()) == elementwise
    assert ("relu" in task.name) == elementwise
    assert difference_from_onnxruntime(network_of(str(path), target), path) < 1e-5


@pytest.mark.parametrize(("after", "used_again"), [(2, False), (12, False), (2, True)])
def test_a_convolution_of_a_concatenation_is_a_sum_where_that_pays(
    tmp_path: Path, target: str, after: int, used_again: bool
) -> None:
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype("float32"), name)
        for name, shape in (
            ("w1", (4, 3, 1, 1)), ("w2", (8, 3, 3, 3)), ("w3", (after, 12, 3, 3)), ("b", (after,)),
        )
    ]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["p"]),
        helper.make_node("Conv", ["x", "w2"], ["q"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["p", "q"], ["j"], axis=1),
        helper.make_node("Conv", ["j", "w3", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, after, 4, 4])]
    if used_again:
        outputs.append(helper.make_tensor_value_info("j", TensorProto.FLOAT, [1, 12, 8, 8]))
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    made = helper.make_model(
        helper.make_graph(nodes, "joined", [shape], outputs, weights),
        opset_imports=[helper.make_opsetid("", 13)],
    )
    made.ir_version = 8
    save(made, str(tmp_path / "joined.onnx"))
    graph = network_of(str(tmp_path / "joined.onnx"), target)
    names = " ".join(str(name.name_hint) for name in graph.module.functions)
    assert ("concat" in names) == (after == 12 or used_again)
    assert names.count("conv2d") == (3 if "concat" in names else 4)
    # Channels last runs through: the input and the output alone are transposed.
    assert graph.layout == "NHWC" and names.count("transpose") == (3 if used_again else 2)
    assert not [one for one in names.split() if one.rstrip("0123456789") in ("add", "relu")]
    made_of = tmp_path / "joined.onnx"
    assert difference_from_onnxruntime(graph, made_of) < 1e-5


@pytest.mark.parametrize(
    ("exponent", "dimensions"), [*((e, 0) for e in (0.25, 0.5, 0.75, 1.5, 2.0, 0.3)), (2.0, 3)]
)
def test_powers_of_quarters_are_roots(
    tmp_path: Path, target: str, exponent: float, dimensions: int
) -> None:
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper, save

    value = numpy_helper.from_array(np.full((1,) * dimensions, exponent, "float32"), "c")
    nodes = [
        helper.make_node("Abs", ["x"], ["p"]),
        helper.make_node("Pow", ["p", "c"], ["q"]),
        helper.make_node("Add", ["q", "p"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 70])]
    whole = [1, 3, 70][
        -max(2, dimensions) :
    ]  # an exponent of more dimensions gives its result them
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, whole)]
    made = helper.make_model(
        helper.make_graph(nodes, "powers", inputs, outputs, [value]),
        opset_imports=[helper.make_opsetid("", 13)],
    )
    made.ir_version = 8
    path = tmp_path / "powers.onnx"
    save(made, str(path))
    graph = network_of(str(path), target)
    assert ("power" in " ".join(map(str, graph.module.get_global_vars()))) == (
        exponent == 0.3 or dimensions == 3
    )
    assert difference_from_onnxruntime(graph, path) < 1e-5


ACTIVATIONS = {
    "sigmoid": [("Sigmoid", ["z"], {})],
    "silu": [("Sigmoid", ["z"], {}), ("Mul", ["z", "a"], {})],
    "gelu": [("Gelu", ["z"], {})],
    "gelu, tanh": [("Gelu", ["z"], {"approximate": "tanh"})],
    "mish": [("Mish", ["z"], {})],
    "elu": [("Elu", ["z"], {})],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_activation_is_a_call_an_element(tmp_path: Path, target: str, name: str) -> None:
    pytest.importorskip("onnx")
    from onnx import helper

    steps = [("Mul", ["x", "s"], {}), *ACTIVATIONS[name]]
    ends = [*["z", "a"][: len(steps) - 1], "y"]
    nodes = [
        helper.make_node(kind, inputs, [end], **options)
        for (kind, inputs, options), end in zip(steps, ends, strict=True)
    ]
    # Far out too: what is raised to a power of e must neither overflow nor become NaN.
    scale = np.repeat(np.float32([0.1, 1, 5, 40]), 16)
    path = save_model(tmp_path / "a.onnx", nodes, {"s": scale}, [9, 64], [9, 64], opset=20)
    graph = network_of(str(path), target)
    calls = ("sigmoid(", "T.exp(", "T.erf(", "T.tanh(", "T.log(", "T.pow")
    assert not [call for call in calls if call in graph.module.script()]
    assert difference_from_onnxruntime(graph, path) < 1e-5


@pytest.mark.parametrize(("side", "steps"), [(64, 2), (16, 1)])
def test_a_large_mean_is_taken_in_two_steps(
    tmp_path: Path, target: str, side: int, steps: int
) -> None:
    pytest.importorskip("onnx")
    from onnx import helper

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    shape = [1, 3, side, side]
    path = save_model(tmp_path / "m.onnx", nodes, {"w": (64, 3, 1, 1)}, shape, [1, 64, 1, 1])
    graph = network_of(str(path), target)
    called = [name.name_hint for name in graph.module.functions if "mean" in name.name_hint]
    assert graph.layout == "NHWC" and len(called) == steps
    assert difference_from_onnxruntime(graph, path) < 1e-5


@pytest.mark.parametrize(
    ("indices", "gathers"),
    [(1, False), (-1, False), ([0, 2], False), ([1, 2], False), ([2, 0], True), ([0, 0], True)],
)
def test_gathers_of_constants_are_slices_and_nothing_is_printed(
    tmp_path: Path,
    target: str,
    indices: int | list[int],
    gathers: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("onnx")
    from onnx import helper

    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"], axis=1),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("Mul", ["r", "s"], ["y"]),
    ]
    weights = {"i": np.array(indices, "int64"), "s": np.float32([2, 3, 4, 5])}
    after = [5, 4] if isinstance(indices, int) else [5, len(indices), 4]
    path = save_model(tmp_path / "g.onnx", nodes, weights, [5, 3, 4], after)
    graph = network_of(str(path), target)
    names = " ".join(str(name.name_hint) for name in graph.module.functions)
    assert ("take" in names) == gathers and ("slice" in names) != gathers
    assert difference_from_onnxruntime(graph, path) < 1e-5
    assert "Warning" not in capfd.readouterr().err


@pytest.mark.parametrize(("least", "added"), [(0.0, 1.0), (0.5, 1.0), (0.0, 2.0)])
def test_what_is_only_like_mish_stays_what_it_is(least: float, added: float) -> None:
    from tvm import relax

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([4, 16], "float32"))
    with builder.function("main", [x]):
        small = relax.op.exp(relax.op.negative(relax.op.abs(x)))
        above = relax.op.log(relax.op.add(relax.const(added), small))
        softplus = relax.op.add(relax.op.maximum(x, relax.const(least)), above)
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(relax.op.tanh(softplus)))
        builder.emit_func_output(out)
    left = operators(activations(builder.finalize()))
    assert left["relax.log"] == int((least, added) != (0.0, 1.0))


def test_constants_are_moved_before_anything_is_compiled(model_file: Path, target: str) -> None:
    module = fold_constants(load_model(model_file))
    graph = prepare(module, target, "small", "NHWC")
    transposes = [n for n in map(str, graph.module.get_global_vars()) if "transpose" in n]
    assert len(transposes) == 1  # of the input; the pooled output's is a reshape


@pytest.mark.parametrize(
    ("extents", "layout"),
    [((5, 6), "auto"), ((5, 6), "NCHW"), ((3, 5, 6), "auto")],
    ids=["2d", "2d-first", "3d"],
)
@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "more", "places"),
    [
        (2, 2, 0, 0, 1), (4, 4, 1, 0, 1), (2, 2, 0, 1, 1), (2, 3, 0, 1, 1), (3, 1, 1, 0, 3),
        (3, 2, 1, 1, 2), (4, 2, 1, 0, 2), (5, 3, 2, 1, 2), (7, 3, 2, 0, 3),
    ],
)  # fmt: skip
def test_transposed_convolutions_are_products_or_convolutions(
    tmp_path: Path,
    target: str,
    kernel: int,
    stride: int,
    pads: int,
    more: int,
    places: int,
    extents: tuple[int, ...],
    layout: Literal["auto", "NCHW"],
) -> None:
    pytest.importorskip("onnx")
    import tvm
    from onnx import helper

    axes = len(extents)
    window, one = [kernel] * axes, [1] * axes
    weights = {"w1": (8, 3, *[3] * axes), "w2": (8, 6, *window), "b": (6,), "w3": (4, 6, *one)}
    up = {"strides": [stride] * axes, "pads": [pads] * 2 * axes, "output_padding": [more] * axes}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1] * 2 * axes),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ConvTranspose", ["r", "w2", "b"], ["t"], **up),
        helper.make_node("Conv", ["t", "w3"], ["y"]),
    ]
    path = save_model(tmp_path / "up.onnx", nodes, weights, [2, 3, *extents], None)
    prepared = network_of(str(path), target, layout=layout)
    assert prepared.layout == ("NCHW" if layout == "NCHW" else "NHWC")
    names = " ".join(name.name_hint for name in prepared.module.functions)
    # Windows that do not overlap are a product, but where places without input are added.
    assert ("matmul" in names) == (kernel <= stride and kernel + more <= stride + pads)
    assert f"conv{axes}d_transpose" not in names
    # A window holds the fewest inputs that a place needs: no other is multiplied by zeros.
    shapes: list[tuple[int, ...]] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.expr.GenericConst):
            shapes.append(tuple(node.value.shape))

    tvm.relax.analysis.post_order_visit(prepared.module["main"], visit)
    windows = [shape[:axes] for shape in shapes if shape[axes:-1] == (8,)]
    assert windows == ([] if "matmul" in names else [(places,) * axes])
    assert difference_from_onnxruntime(prepared, path) < 1e-5


@pytest.mark.parametrize(
    ("attributes", "channels"),
    [({"strides": [2, 2], "pads": [1] * 4}, 6), ({"dilations": [2, 2]}, 6), ({"group": 2}, 12)],
    ids=["plain", "dilated", "grouped"],
)
def test_a_network_of_transposed_convolutions_alone_computes_what_it_should(
    tmp_path: Path, target: str, attributes: dict[str, Any], channels: int
) -> None:
    """As generators of images have them; dilated and grouped ones stay what they are."""
    pytest.importorskip("onnx")
    from onnx import helper

    nodes = [
        helper.make_node("ConvTranspose", ["x", "w1"], ["a"], **attributes),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("ConvTranspose", ["r", "w2"], ["y"], **attributes),
    ]
    weights = {"w1": (4, 6, 4, 4), "w2": (channels, 2, 4, 4)}
    path = save_model(tmp_path / "alone.onnx", nodes, weights, [1, 4, 5, 6], None)
    prepared = network_of(str(path), target)
    names = " ".join(name.name_hint for name in prepared.module.functions)
    assert ("conv2d_transpose" in names) == ("strides" not in attributes)
    assert difference_from_onnxruntime(prepared, path) < 1e-5


def test_names_that_tvm_changes_bring_no_warning_of_its_own(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["y"])]
    path = save_model(tmp_path / "names.onnx", nodes, {"w": (4, 3, 1, 1)}, [1, 3, 4, 4], None)
    model = onnx.load(str(path))
    model.graph.input[0].name = model.graph.node[0].input[0] = "input.1"
    onnx.save(model, str(path))
    assert [str(one) for one in load_model(path)["main"].params] == ["input_1"]
    assert not [w for w in recwarn if "Renaming" in str(w.message)]


def test_bare_numbers_and_sums_of_constants_are_folded() -> None:
    import tvm
    from tvm import relax

    ones = np.ones((3, 4), dtype="float32")
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            half = relax.op.add(relax.const(ones), tvm.tirx.FloatImm("float32", 3.0))
            root = relax.op.sqrt(builder.emit(half))
            shifted = relax.op.add(x, tvm.tirx.FloatImm("float32", 0.5))
            total = relax.op.divide(builder.emit(shifted), builder.emit(root))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    folded = fold_constants(builder.get())
    assert operators(folded) == {"relax.add": 1, "relax.divide": 1}
    assert "R.const(0.5" in folded.script(show_meta=False)
    (got,) = outputs(folded, ones)
    np.testing.assert_allclose(got, 0.75 * ones)


def test_batch_norms_before_convolutions_and_flat_constants_keep_channels_last(
    tmp_path: Path, target: str
) -> None:
    """As DenseNet has them, and as old models scale: with constants of three dimensions."""
    pytest.importorskip("onnx")
    from onnx import helper

    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "w0": (8, 3, 3, 3), "w1": (8, 8, 1, 1), "w2": (8, 16, 3, 3), "scale": (8, 1, 1),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["s"], pads=[1] * 4),
        helper.make_node("Mul", ["s", "scale"], ["y0"]),
    ]
    for place, (weight, channels, pad) in enumerate((("w1", 8, 0), ("w2", 16, 1))):
        norm = [f"n{place}_{part}" for part in range(4)]
        weights |= {name: rng.uniform(0.5, 2, channels).astype("float32") for name in norm}
        after = "y" if place else "y1"
        nodes += [
            helper.make_node("BatchNormalization", [f"y{place}", *norm], [f"b{place}"]),
            helper.make_node("Relu", [f"b{place}"], [f"r{place}"]),
            helper.make_node("Conv", [f"r{place}", weight], [f"c{place}"], pads=[pad] * 4),
            helper.make_node("Concat", [f"y{place}", f"c{place}"], [after], axis=1),
        ]
    path = save_model(tmp_path / "dense.onnx", nodes, weights, [1, 3, 6, 6], [1, 24, 6, 6])
    prepared = network_of(str(path), target)
    names = [name.name_hint for name in prepared.module.functions]
    assert prepared.layout == "NHWC"
    # Of the input and the output; and nothing divides.
    assert len([name for name in names if "transpose" in name]) <= 2
    assert not [name for name in names if "divide" in name or "sqrt" in name]
    assert difference_from_onnxruntime(prepared, path) < 1e-5


def test_hard_swish_keeps_channels_last_and_is_one_clip(tmp_path: Path, target: str) -> None:
    pytest.importorskip("onnx")
    from onnx import helper

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1] * 4),
        helper.make_node("HardSwish", ["c"], ["h"]),
        helper.make_node("Conv", ["h", "w2"], ["y"]),
    ]
    weights = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3)}
    shapes = ([1, 3, 6, 6], [1, 8, 4, 4])
    path = save_model(tmp_path / "swish.onnx", nodes, weights, *shapes, opset=14)
    prepared = network_of(str(path), target)
    names = [name.name_hint for name in prepared.module.functions]
    assert prepared.layout == "NHWC"
    (swish,) = [name for name in names if "clip" in name]
    assert "conv2d" in swish and "relu" not in swish
    assert difference_from_onnxruntime(prepared, path) < 1e-5


def test_weights_that_do_not_fit_the_cache_are_cold(
    model_file: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(task.cold for task in tasks_of([str(model_file)], target))
    monkeypatch.setattr("toolkit.networks.tasks.CACHE_BYTES", 100)
    assert all(task.cold for task in tasks_of([str(model_file)], target))


@pytest.mark.parametrize("bounds", [(0.0, 1.5), (-1.0, 1.0), (-3.0e38, 2.0), (0.0, float("inf"))])
def test_clips_keep_their_bounds(bounds: tuple[float, float], target: str) -> None:
    from tvm import relax

    x = relax.Var("x", relax.TensorType((1, 2, 3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.clip(x, *bounds))
        builder.emit_func_output(result)
    lowered = prepare(builder.get(), target, "clip").module
    array = np.random.default_rng(0).normal(0, 2, (1, 2, 3, 4)).astype("float32")
    (got,) = outputs(lowered, array)
    np.testing.assert_allclose(got, np.clip(array, *bounds), rtol=1e-6)


def test_a_clip_of_numbers_without_a_sign_does_not_wrap_around(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["x"], ["u"], to=TensorProto.UINT8),
        helper.make_node("Clip", ["u", "low", "high"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    bounds = {"low": np.array(0, "uint8"), "high": np.array(6, "uint8")}
    path = save_model(tmp_path / "m.onnx", nodes, bounds, [4], [4])
    assert [node.op_type for node in read_onnx(path, {}).graph.node] == ["Cast", "Clip", "Cast"]


def test_a_convolution_of_float64_is_a_sum_of_such() -> None:
    from tvm import relax

    x, y = (relax.Var(name, relax.TensorType((1, 4, 5, 5), "float64")) for name in "xy")
    builder, weight = relax.BlockBuilder(), relax.const(np.ones((2, 8, 1, 1)), "float64")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            joined = builder.emit(relax.op.concat([x, y], 1))
            result = builder.emit_output(relax.op.nn.conv2d(joined, weight))
        builder.emit_func_output(result)
    made = convolve_before_concatenation(builder.get())
    assert operators(made)["relax.nn.conv2d"] == 2
