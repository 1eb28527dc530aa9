"""Model files become graphs that compute the same and hold nothing that passes stop at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.networks.conftest import small_model
from toolkit.errors import LiveError
from toolkit.networks.graph import operators, prepare
from toolkit.networks.importing import load_model, read_onnx
from toolkit.networks.tasks import tasks_of

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
    (first,) = [name for name in names if "conv2d" in name and name.count("relu") == 2]
    assert "subtract" in first


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
