"""Programs that PyTorch exported compute what PyTorch does, and fuse as ONNX graphs do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.networks.conftest import outputs
from toolkit.errors import LiveError
from toolkit.networks.compile import compile_network
from toolkit.networks.importing.files import load_model
from toolkit.networks.tasks import network_of, tasks_of

torch = pytest.importorskip("torch", reason="torch, an optional extra, is not installed")
pytestmark = [
    pytest.mark.live,
    # PyTorch warns of what it calls itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
F, nn = torch.nn.functional, torch.nn


class Function(nn.Module):
    """A module of a function, and of the modules that it calls."""

    def __init__(self, function: Callable[..., Any], *parts: Any) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*self.parts, *inputs)


def save(path: Path, model: Any, *shape: int, **options: Any) -> Path:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    torch.export.save(torch.export.export(model, (x,), **options), str(path))
    return path


def test_convolution_norm_and_activation_are_one_function(tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    nn.init.normal_(norm.running_mean)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), norm, nn.ReLU(),
        nn.Conv2d(8, 8, 1), nn.Hardswish(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5),
    ).eval()  # fmt: skip
    path = save(tmp_path / "model.pt2", model, 1, 3, 12, 12)
    graph = network_of(str(path), target)
    names = [task.name.split(":")[1] for task in tasks_of([str(path)], target)]
    convolutions = [name for name in names if "conv2d" in name]
    assert graph.layout == "NHWC" and len(convolutions) == 3
    assert [sum(kind in name for name in convolutions) for kind in ("relu", "clip")] == [1, 2]
    assert not [name for name in names if "norm" in name or name == "divide"]
    result = compile_network(
        graph, tmp_path / "out", database=None, target=target, model=path,
        choose_seconds=0, seconds=0,
    )  # fmt: skip
    assert result.checked_against == "torch" and result.difference < 1e-5


CASES: dict[str, Callable[[Any], Any]] = {
    "an index from the end": lambda x: x[:, -1] * x[0, -2],
    "indices from the end": lambda x: x[:, [-1, 0]],
    "indices of two axes": lambda x: x[:, [-1, 0, 1], :, [1, -2, 0]],
    "indices of neighbours": lambda x: x[:, :, torch.tensor([[0], [-1]]), torch.tensor([1, -2])],
    "windows": lambda x: F.unfold(x, 3),
    "slices": lambda x: torch.roll(x[:, 1:, :-1], (1, -1), (1, 2)),
    "largest": lambda x: x.amax((2, 3), keepdim=True) - x.amin(1, keepdim=True) + x.amax(),
    "grid": lambda x: F.grid_sample(
        x, torch.tanh(x[:, :2, :5]).permute(0, 2, 3, 1), align_corners=False
    ),
    "resize": lambda x: F.interpolate(x, size=(9, 9), mode="bicubic"),
    "mish": F.mish,
    "selu": lambda x: F.selu(x) + F.celu(x, 0.7) + F.leaky_relu(x, 0.2) + F.softplus(x),
    "masked attention": lambda x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.arange(6)[:, None] > torch.arange(6)
    ),
    "causal attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "two outputs": lambda x: (x + 1, {"a": x * 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(tmp_path: Path, target: str, name: str) -> None:
    x = np.random.default_rng(0).normal(0, 2, (1, 4, 6, 6)).astype("float32")
    path = save(tmp_path / "case.pt2", Function(CASES[name]), *x.shape)
    wanted = torch.utils._pytree.tree_leaves(CASES[name](torch.from_numpy(x)))
    graph = network_of(str(path), target)
    for got, right in zip(outputs(graph.module, x), wanted, strict=True):
        np.testing.assert_allclose(got, right.numpy(), rtol=1e-4, atol=1e-5)
    if name == "mish":
        assert "T.log(" not in graph.module.script()


def test_attention_without_a_mask_is_two_products_and_a_softmax(
    tmp_path: Path, target: str
) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu").eval()
    path = save(tmp_path / "layer.pt2", layer, 2, 6, 32)
    names = [task.name for task in tasks_of([str(path)], target)]
    assert not [name for name in names if any(s in name for s in ("equal", "where", "broadcast"))]
    x = np.random.default_rng(0).normal(0, 1, (2, 6, 32)).astype("float32")
    (got,) = outputs(network_of(str(path), target).module, x)
    wanted = layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_causal_attention_needs_no_look_at_its_rows(tmp_path: Path, target: str) -> None:
    def causal(x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    path = save(tmp_path / "causal.pt2", Function(causal), 1, 2, 6, 8)
    names = [task.name for task in tasks_of([str(path)], target)]
    assert not [name for name in names if any(s in name for s in ("equal", "where", "not"))]


def test_what_cannot_be_imported_is_named(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    path = save(tmp_path / "fft.pt2", Function(lambda x: torch.fft.rfft(x).abs()), 2, 8)
    with pytest.raises(LiveError, match=r"does not import the operators '_fft_r2c.*as ONNX"):
        load_model(path)
    path = save(tmp_path / "mask.pt2", Function(lambda x: x[x > 0]), 2, 8)
    with pytest.raises(LiveError, match="as ONNX"):
        load_model(path)
    path = save(tmp_path / "train.pt2", nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), 2, 8)
    with pytest.raises(LiveError, match=r"training mode.*model\.eval\(\)"):
        load_model(path)
    (tmp_path / "weights.pt2").write_bytes(b"no program")
    with pytest.raises(LiveError, match=r"cannot read the file.*torch\.export\.save"):
        load_model(tmp_path / "weights.pt2")
    assert capfd.readouterr().err == ""


def test_an_open_shape_is_named_with_its_cure_and_can_be_given(tmp_path: Path, target: str) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    open_rows = {"inputs": ({0: rows},)}
    path = save(tmp_path / "open.pt2", Function(nn.ReLU().forward), 4, 8, dynamic_shapes=open_rows)
    (name,) = [str(one.name) for one in load_model_inputs(path)]
    with pytest.raises(LiveError, match=rf"--shape {name}=1,8"):
        load_model(path)
    with pytest.raises(LiveError, match="no input 'data'"):
        load_model(path, {"data": [4, 8]})
    with pytest.raises(LiveError, match=r"exported with the shape \?,8"):
        load_model(path, {name: [4, 9]})
    graph = network_of(str(path), target, shapes={name: [3, 8]})
    x = np.random.default_rng(0).normal(0, 1, (3, 8)).astype("float32")
    np.testing.assert_array_equal(outputs(graph.module, x)[0], np.maximum(x, 0))


def test_one_dimension_of_two_inputs_has_one_extent(tmp_path: Path) -> None:
    rows, x = torch.export.Dim("rows", min=2, max=64), torch.ones(4, 8)
    shapes = {"inputs": ({0: rows}, {0: rows})}
    added = Function(lambda a, b: a + b)
    program = torch.export.export(added, (x, x.clone()), dynamic_shapes=shapes)
    path = tmp_path / "two.pt2"
    torch.export.save(program, str(path))
    first, second = (str(one.name) for one in load_model_inputs(path))
    with pytest.raises(LiveError, match="is 5, and 3 in another input"):
        load_model(path, {first: [3, 8], second: [5, 8]})
    module = load_model(path, {first: [3, 8], second: [3, 8]})
    assert [int(one.ty.shape.values[0]) for one in module["main"].params] == [3, 3]


def load_model_inputs(path: Path) -> list[Any]:
    placeholders = torch.export.load(str(path)).graph.find_nodes(op="placeholder")
    return list(placeholders)
