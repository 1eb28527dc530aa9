"""Random small networks, and whether they come out of ``toolkit compile`` as they should."""

from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tvm.relax.frontend.onnx import from_onnx

from tests.networks.conftest import difference_from_onnxruntime
from toolkit.live.measure.machine import default_target, parse_target
from toolkit.live.space.quiet import quiet
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.tasks import network_of


class Network:
    """Nodes and weights of a network in the making, and the types of all its values."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opsets = [helper.make_opsetid("", int(self.rng.integers(13, 18)))]
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.shared: dict[tuple[int, ...], str] = {}
        self.values: dict[str, Any] = {}

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def maybe(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def input(self, *shape: int) -> str:
        name = f"x{len(self.values)}"
        self.values[name] = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        return name

    def weight(self, *shape: int) -> str:
        """A random weight, at times the one of that shape that is used already."""
        if shape not in self.shared or self.maybe(0.8):
            fan = np.prod(shape[1:]) if len(shape) > 2 else shape[0] if len(shape) > 1 else 1
            self.shared[shape] = self.constant(self.rng.normal(0, fan**-0.5, shape))
        return self.shared[shape]

    def constant(self, value: Any) -> str:
        array, name = np.asarray(value), f"w{len(self.weights)}"
        array = array.astype("float32") if array.dtype.kind == "f" else array
        self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def shape(self, value: str) -> list[int]:
        return [one.dim_value for one in self.values[value].type.tensor_type.shape.dim]

    def op(self, kind: str, *inputs: Any, count: int = 1, **attributes: Any) -> str:
        """A node of so many outputs, and the first. Inputs that are no names are constants."""
        inputs = inputs[::-1] if kind in ("Add", "Mul") and self.maybe(0.5) else inputs
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        made = [f"{kind}{len(self.nodes)}_{at}" for at in range(count)]
        node = helper.make_node(kind, names, made, **attributes)
        model = self.model([node], [helper.make_empty_tensor_value_info(one) for one in made])
        typed = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output
        self.values.update({one.name: one for one in typed})
        assert 0 not in self.shape(made[0]), "nothing is left"
        self.nodes.append(node)
        return made[0]

    def reduce(self, kind: str, x: str, axis: int, keep: int = 1) -> str:
        if kind == "ReduceSum":
            return self.op(kind, x, [axis], keepdims=keep)
        return self.op(kind, x, axes=[axis], keepdims=keep)

    def parts(self, x: str, axis: int, *sizes: int) -> list[str]:
        if self.maybe(0.5):
            first = self.op("Split", x, list(sizes), count=len(sizes), axis=axis)
            return [f"{first[:-1]}{at}" for at in range(len(sizes))]
        ends = [(sum(sizes[:at]), sum(sizes[: at + 1])) for at in range(len(sizes))]
        return [self.op("Slice", x, [first], [end], [axis]) for first, end in ends]

    def activation(self, x: str) -> str:
        kind = self.pick("Relu", "Clip", "Erf", "Sigmoid", "HardSigmoid", "Tanh", "Elu", "Pow")
        if kind == "Erf":
            made = self.op("Add", self.op(kind, self.op("Div", x, 2**0.5)), 1.0)
            return self.op("Mul", self.op("Mul", x, 0.5), made)
        if kind == "Pow":
            return self.op(kind, self.op("Abs", x), self.pick(0.5, 0.75, 2.0))
        made = self.op(kind, x, *(-1.0, self.pick(1.0, 6.0)) * (kind == "Clip"))
        return self.op("Mul", x, made) if "Sigmoid" in kind else made

    def linear(self, x: str, width: int) -> str:
        """A product with weights, in one of two writings, mostly with a bias."""
        *rows, before = self.shape(x)
        bias = [self.weight(width)] * self.maybe(0.7)
        if self.maybe(0.3):
            inputs = (self.op("Reshape", x, [-1, before]), self.weight(before, width), *bias)
            return self.op("Reshape", self.op("Gemm", *inputs), [*rows, width])
        made = self.op("MatMul", x, self.weight(before, width))
        return self.op("Add", made, *bias) if bias else made

    def model(self, nodes: list[Any], outputs: list[Any]) -> Any:
        used = list(dict.fromkeys(one for node in nodes for one in node.input))
        made = {one for node in nodes for one in node.output}
        inputs = [self.values[one] for one in used if one in self.values and one not in made]
        weights = [self.weights[one] for one in used if one in self.weights]
        graph = helper.make_graph(nodes, "fuzzed", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=8)


def norm(net: Network, x: str) -> str:
    """A norm of each token, at times of each channel, with or without an epsilon."""
    kind, axis = net.pick("layer", "layer", "mean square", "length"), net.pick(-1, -1, -1, 1)
    if kind == "length":
        size = net.reduce("ReduceL2", x, axis)
    else:
        x = net.op("Sub", x, net.reduce("ReduceMean", x, axis)) if kind == "layer" else x
        squares = net.op("Mul", x, x) if net.maybe(0.5) else net.op("Pow", x, 2.0)
        size = net.reduce("ReduceMean", squares, axis)
    size = net.op("Add", size, 1e-5) if net.maybe(0.5) else size
    made = net.op("Div", x, size if kind == "length" else net.op("Sqrt", size))
    return net.op("Mul", made, net.weight(net.shape(x)[-1])) if net.maybe(0.5) else made


def rotary(net: Network, x: str) -> str:
    """Turn pairs of channels by angles that grow with the row."""
    rows, half = net.shape(x)[-2], net.shape(x)[-1] // 2
    angles = np.tile(np.arange(rows)[:, None] * 100.0 ** (-np.arange(half) / half), 2)
    first, second = net.parts(x, 3, half, half)
    turned = net.op("Concat", net.op("Neg", second), first, axis=-1)
    return net.op("Add", net.op("Mul", x, np.cos(angles)), net.op("Mul", turned, np.sin(angles)))


def attention(net: Network, x: str, memory: str) -> str:
    """Attention of two heads to ``memory``, in one of several writings."""
    batch, rows, width = net.shape(x)

    def cut(y: str) -> str:
        many = net.op("Reshape", y, [batch, net.shape(y)[1], 2, width // 2])
        return net.op("Transpose", many, perm=[0, 2, 1, 3])

    style = net.pick("apart", "joined", "stacked", "itself") if memory == x else "apart"
    if style == "stacked":
        many = net.op("Reshape", net.linear(x, 3 * width), [batch, rows, 3, 2, width // 2])
        many = net.op("Transpose", many, perm=[2, 0, 3, 1, 4])
        q, k, v = (net.op("Gather", many, np.int64(at), axis=0) for at in range(3))
    elif style == "joined":
        q, k, v = map(cut, net.parts(net.linear(x, 3 * width), 2, width, width, width))
    elif style == "itself":
        q = k = v = cut(x)
    else:
        q, k, v = (cut(net.linear(one, width)) for one in (x, memory, memory))
    q, k = (norm(net, q), norm(net, k)) if net.maybe(0.2) else (q, k)
    q, k = (rotary(net, q), rotary(net, k)) if net.maybe(0.3) else (q, k)
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Mul", scores, (width // 2) ** -0.5)
    seen = np.tri(*net.shape(scores)[-2:])[net.pick(..., (None, None))] > 0  # what came before
    low = net.pick(-np.inf, -1e9, float(np.finfo("float32").min))
    mask = net.pick("", "", "Add", "Where", "Where")
    if mask == "Add":
        scores = net.op(mask, scores, np.where(seen, 0.0, low))
    elif mask:
        scores = net.op(mask, *net.pick((seen, scores, low), (~seen, low, scores)))
    made = net.op("MatMul", net.op("Softmax", scores, axis=net.pick(-1, -1, -1, 3, -2)), v)
    made = net.op("Reshape", net.op("Transpose", made, perm=[0, 2, 1, 3]), [batch, rows, width])
    return net.linear(made, width)


def mixed(net: Network, x: str) -> str:
    """What some networks do between attentions; of the same shape."""
    _, rows, width = net.shape(x)
    kind = net.pick("mlp", "mlp", "tokens", "stack", "roll", "pooled", "double")
    if kind == "mlp":
        return net.linear(net.activation(net.linear(x, net.pick(7, 50, 2 * width))), width)
    if kind == "tokens":  # a layer along the rows
        turned = net.activation(net.linear(net.op("Transpose", x, perm=[0, 2, 1]), 16))
        return net.op("Transpose", net.linear(turned, rows), perm=[0, 2, 1])
    if kind == "stack":
        both = [net.op("Unsqueeze", one, [0]) for one in (x, net.activation(x))]
        both = net.linear(net.op("Concat", *both, axis=0), width)
        return net.reduce(net.pick("ReduceSum", "ReduceMax"), both, 0, 0)
    if kind == "roll":
        return net.op("Concat", *net.parts(x, 1, rows // 3, rows - rows // 3)[::-1], axis=1)
    if kind == "pooled":
        pooled = net.reduce(net.pick("ReduceMean", "ReduceMax", "ReduceSum"), x, 1)
        return net.op("Mul", x, net.linear(pooled, width))
    both = net.op("Concat", x, net.activation(x), axis=1)
    return net.op("Add", *net.parts(attention(net, both, both), 1, rows, rows))


def transformer(net: Network) -> None:
    """A stream of tokens, with a class token or joined of two, through some layers to an end."""
    batch, width = net.pick(1, 1, 2), net.pick(8, 12, 20)
    rows, start = net.pick(7, 12, 23, 23, 46, 50, 77, 197), net.pick("plain", "class", "two")
    x = net.input(batch, rows - net.pick(1, rows // 2) * (start != "plain"), width)
    if start != "plain":
        missing = rows - net.shape(x)[1]
        other = net.linear(net.input(batch, missing, width), width) if start == "two" else ""
        x = net.op("Concat", other or net.weight(batch, missing, width), x, axis=1)
    memory = net.input(batch, net.pick(5, rows), width)
    for _ in range(int(net.rng.integers(1, 6))):
        y, other = norm(net, x) if net.maybe(0.6) else x, net.maybe(0.2)
        y = attention(net, y, memory if other else y) if net.maybe(0.5) else mixed(net, y)
        x = net.op("Add", x, y) if net.maybe(0.7) else y
    end = net.pick("", "Flatten", "Transpose", "ReduceMean", "ReduceMax", "ReduceSum", "Gather")
    if end in ("Flatten", "Transpose"):
        net.op(end, x)
    elif end:
        first = net.op("Gather", x, np.int64(0), axis=1) if end == "Gather" else ""
        net.linear(first or net.reduce(end, x, 1, 0), net.pick(7, 50, 92))


def layer(net: Network, x: str, made: list[str]) -> str:
    """What follows ``x`` in a convolutional network, where that is possible."""
    pick, channels, odd = net.pick, net.shape(x)[1], net.maybe(0.3)
    kind = pick(*["Conv"] * 4, "ConvTranspose", "bn", "act", "act", "Add", "Mul", "Concat", "Pool")
    window = [pick(1, 2, 3, 3, 5), 3] if net.maybe(0.3) else [pick(1, 3, 3, 5)] * 2
    around = [pick(*range(one)) if odd else one // 2 for one in window * 2]
    spread = {"kernel_shape": window, "pads": around, "strides": [pick(1, 1, 1, 2, 3)] * 2}
    if kind == "Conv":
        group = pick(1, 1, channels, int(np.gcd(channels, 4)), int(np.gcd(channels, 6)))
        out = group * pick(1, 2, 3) if group > 1 else pick(3, 5, 12, 16, 20, 29, 32, 92)
        bias, spread["dilations"] = [net.weight(out)] * pick(0, 1), [pick(1, 1, 1, 2)] * 2
        weight = net.weight(out, channels // group, *window)
        return net.op(kind, x, weight, *bias, group=group, **spread)
    if kind == "ConvTranspose":
        return net.op(kind, x, net.weight(channels, pick(3, 8, 12), *window), **spread)
    if kind == "bn":
        inputs = [net.weight(channels) for _ in range(3)]
        return net.op("BatchNormalization", x, *inputs, net.rng.uniform(0.5, 2, channels))
    if kind in ("Add", "Mul", "Concat"):
        first = 2 if kind == "Concat" else 0
        like = [one for one in made if net.shape(one)[first:] == net.shape(x)[first:]]
        return net.op(kind, x, pick(*like), **({"axis": 1} if first else {}))
    if kind == "act":
        return net.activation(x)
    return net.op(pick("Max", "Average") + "Pool", x, **spread)


def convolutions(net: Network) -> None:
    """Convolutions and what stands between them, mostly with a head of classes."""
    made = [net.input(net.pick(1, 1, 2, 8), net.pick(3, 5, 12, 32), net.pick(7, 12, 14), 14)]
    while len(made) < net.rng.integers(5, 12):
        try:
            made.append(layer(net, made[-1] if net.maybe(0.7) else net.pick(*made), made))
        except (AssertionError, onnx.shape_inference.InferenceError):
            continue  # too small for this window
        made = [one for one in made if np.prod(net.shape(one)) < 100_000]
    x = net.op("GlobalAveragePool", made[-1]) if net.maybe(0.7) else made[-1]
    if np.prod(net.shape(x)[1:]) < 2000:
        net.linear(net.op("Flatten", x), net.pick(92, 1000))


KINDS = {"transformer": transformer, "convolutions": convolutions}


def check(seed: int, folder: Path, kind: str | None = None) -> str | None:
    """Compile a network, and leave its model where it came out wrong; or why that tells nothing."""
    kind, net = kind or list(KINDS)[seed % 2], Network(seed)
    KINDS[kind](net)
    path, target = folder / f"{kind}-{seed}.onnx", parse_target(default_target(1))
    used = {one for node in net.nodes for one in node.input}
    made = [one for node in net.nodes for one in node.output if one not in used or net.maybe(0.02)]
    onnx.save(net.model(net.nodes, [net.values[one] for one in made]), path)
    options = {"layout": net.pick("auto", "auto", "NCHW", "NHWC"), "tolerance": net.pick(0.0, 1e-4)}

    def wrong(of: Callable[[], Graph], target: str | None = None) -> str | None:
        try:
            difference = difference_from_onnxruntime(of(), path, target)
        except Exception as error:  # TVM's errors have no type in common
            return f"{type(error).__name__}: {error}"
        return None if difference <= 1e-3 else f"off by {difference:.2g} of the range"

    with np.errstate(all="ignore"), redirect_stdout(None), quiet():
        found = wrong(lambda: network_of(str(path), target, **options), target)
        plain = found and wrong(lambda: Graph("plain", from_onnx(onnx.load(path)), "NCHW", 0))
    if found and not plain:
        raise AssertionError(f"{kind} of seed {seed}, {options}: {found}")
    path.unlink()
    return plain
