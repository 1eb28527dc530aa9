"""Whole networks beside ONNX Runtime and OpenVINO, as a user would tune and compile them.

    python tests/benchmarks/bench_networks.py --model tuning/models/throughput --seconds 225 825

Needs onnx, onnxruntime and openvino. Each network is tuned into a folder, compiled, and read in
turns with both libraries at the same number of threads; for a further number of seconds the same
search goes on. ``wall_s`` is what all commands took until the library was written, start-ups and
the choice of programs inside the network included, comparisons not. ``run_py_ms`` is what
``run.py`` prints, the median of five processes. Four networks come from the onnx package (all
weights of a tensor are equal); the others are written here with random weights. Prints a line of
JSON a network and number of seconds.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson
from onnx import TensorProto, helper, numpy_helper


class Writer:
    """Writes an ONNX graph node by node; weights are random."""

    def __init__(self, shape: list[int]) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.shape = shape

    def weight(self, *shape: int, scale: float | None = None) -> str:
        fan_in = max(int(np.prod(shape[1:] if len(shape) == 4 else shape[:1])), 1)
        values = self.rng.normal(0, scale or (2.0 / fan_in) ** 0.5, shape).astype("float32")
        return self.constant(values)

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(
        self, x: str, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        """Convolution and batch norm."""
        weight = self.weight(after, before // groups, kernel, kernel)
        pads = [kernel // 2] * 4
        x = self.add("Conv", x, weight, pads=pads, strides=[stride] * 2, group=groups)
        ones = np.ones(after, dtype="float32")
        norm = [self.constant(v) for v in (ones, 0 * ones, 0 * ones, ones)]
        return self.add("BatchNormalization", x, *norm)

    def relu6(self, x: str) -> str:
        return self.add("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def dense(self, x: str, before: int, after: int) -> str:
        product = self.add("MatMul", x, self.weight(before, after))
        return self.add("Add", product, self.weight(after, scale=0.01))

    def norm(self, x: str, width: int) -> str:
        ones = np.ones(width, dtype="float32")
        return self.add(
            "LayerNormalization", x, self.constant(ones), self.constant(0 * ones), axis=-1
        )

    def model(self, out: str, opset: int = 17) -> Any:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("data", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
            self.weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made.ir_version = 9
        return onnx.shape_inference.infer_shapes(made)


def mobilenet_v2() -> Any:
    """Sandler et al. 2018, table 2: width 1, 224 x 224."""
    w = Writer([1, 3, 224, 224])
    x = w.relu6(w.conv("data", 3, 32, 3, 2))
    channels = 32
    for expand, after, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(count):
            inner, y = channels * expand, x
            if expand > 1:
                y = w.relu6(w.conv(y, channels, inner, 1))
            y = w.relu6(w.conv(y, inner, inner, 3, stride if number == 0 else 1, inner))
            y = w.conv(y, inner, after, 1)
            x = w.add("Add", x, y) if number else y
            channels = after
    x = w.relu6(w.conv(x, channels, 1280, 1))
    x = w.add("Flatten", w.add("GlobalAveragePool", x))
    return w.model(w.dense(x, 1280, 1000))


def encoder(layers: int = 12, width: int = 768, heads: int = 12, tokens: int = 128) -> Any:
    """Transformer encoder as BERT-base has it, from embedded tokens on (GELU by erf)."""
    w = Writer([1, tokens, width])
    x, depth = "data", width // heads
    split = w.constant(np.array([1, tokens, heads, depth], dtype="int64"))
    joined = w.constant(np.array([1, tokens, width], dtype="int64"))
    for _ in range(layers):
        parts = []
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            part = w.add("Reshape", w.dense(x, width, width), split)
            parts.append(w.add("Transpose", part, perm=order))
        scores = w.add("MatMul", parts[0], parts[1])
        scores = w.add("Div", scores, w.constant(np.float32(depth**0.5)))
        mixed = w.add("MatMul", w.add("Softmax", scores, axis=-1), parts[2])
        mixed = w.add("Reshape", w.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = w.norm(w.add("Add", x, w.dense(mixed, width, width)), width)
        y = w.dense(x, width, 4 * width)
        half, root = w.constant(np.float32(0.5)), w.constant(np.float32(2**0.5))
        gate = w.add("Add", w.add("Erf", w.add("Div", y, root)), w.constant(np.float32(1)))
        y = w.add("Mul", w.add("Mul", y, gate), half)
        x = w.norm(w.add("Add", x, w.dense(y, 4 * width, width)), width)
    return w.model(x)


def efficientnet() -> Any:
    """As EfficientNet-B0 (Tan and Le 2019, table 1), each stage once: SiLU, squeeze-excitation."""
    w = Writer([1, 3, 224, 224])

    def silu(x: str) -> str:
        return w.add("Mul", x, w.add("Sigmoid", x))

    def gate(x: str, before: int, after: int) -> str:
        weights = w.weight(after, before, 1, 1), w.weight(after, scale=0.01)
        return w.add("Conv", x, *weights)

    x, channels = silu(w.conv("data", 3, 32, 3, 2)), 32
    for expand, kernel, after, stride in (
        (1, 3, 16, 1), (6, 3, 24, 2), (6, 5, 40, 2), (6, 3, 80, 2), (6, 5, 112, 1), (6, 5, 192, 2),
    ):  # fmt: skip
        inner, y = channels * expand, x
        if expand > 1:
            y = silu(w.conv(y, channels, inner, 1))
        y = silu(w.conv(y, inner, inner, kernel, stride, inner))
        squeezed = silu(gate(w.add("GlobalAveragePool", y), inner, channels // 4))
        y = w.add("Mul", y, w.add("Sigmoid", gate(squeezed, channels // 4, inner)))
        x, channels = w.conv(y, inner, after, 1), after
    x = w.add("Flatten", w.add("GlobalAveragePool", silu(w.conv(x, channels, 1280, 1))))
    return w.model(w.dense(x, 1280, 1000))


def vision_transformer(layers: int = 3, width: int = 192, heads: int = 3) -> Any:
    """As ViT-Tiny (Touvron et al. 2021) with fewer layers, 224 x 224 in patches of 16 (GELU)."""
    w = Writer([1, 3, 224, 224])
    patches, tokens, depth = 14 * 14, 14 * 14 + 1, width // heads
    kernel = w.weight(width, 3, 16, 16), w.weight(width, scale=0.01)
    x = w.add("Conv", "data", *kernel, strides=[16, 16])
    x = w.add("Reshape", x, w.constant(np.array([1, width, patches], dtype="int64")))
    x = w.add("Transpose", x, perm=[0, 2, 1])
    x = w.add("Concat", w.weight(1, 1, width, scale=1.0), x, axis=1)
    x = w.add("Add", x, w.weight(1, tokens, width, scale=0.1))
    split = w.constant(np.array([1, tokens, 3, heads, depth], dtype="int64"))
    joined = w.constant(np.array([1, tokens, width], dtype="int64"))
    for _ in range(layers):
        mixed = w.add("Reshape", w.dense(w.norm(x, width), width, 3 * width), split)
        mixed = w.add("Transpose", mixed, perm=[2, 0, 3, 1, 4])
        parts = [
            w.add("Gather", mixed, w.constant(np.array(number, dtype="int64")), axis=0)
            for number in range(3)
        ]
        query = w.add("Mul", parts[0], w.constant(np.float32(depth**-0.5)))
        scores = w.add("MatMul", query, w.add("Transpose", parts[1], perm=[0, 1, 3, 2]))
        mixed = w.add("MatMul", w.add("Softmax", scores, axis=-1), parts[2])
        mixed = w.add("Reshape", w.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = w.add("Add", x, w.dense(mixed, width, width))
        y = w.add("Gelu", w.dense(w.norm(x, width), width, 4 * width))
        x = w.add("Add", x, w.dense(y, 4 * width, width))
    first = w.constant(np.array(0, dtype="int64"))
    x = w.add("Gather", w.norm(x, width), first, axis=1)
    return w.model(w.dense(x, width, 1000), opset=20)


def of_onnx(name: str) -> Any:
    """A network of the onnx package."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return onnx.load(str(folder / f"light_{name}.onnx"))


NETWORKS = {
    "squeezenet": lambda: of_onnx("squeezenet"),
    "resnet50": lambda: of_onnx("resnet50"),
    "mobilenet-v2": mobilenet_v2,
    "encoder": lambda: encoder(layers=4),
    "inception-v1": lambda: of_onnx("inception_v1"),
    "densenet-121": lambda: of_onnx("densenet121"),
    "efficientnet": efficientnet,
    "vision-transformer": vision_transformer,
}


def run_py_ms(folder: Path) -> float:
    """What a compiled network says of itself, in milliseconds: median of five processes."""
    command = [sys.executable, str(folder / "run.py")]
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(5)
    ]
    return float(np.median([float(re.findall(r"([\d.]+) ms", one)[0]) for one in said]))


def run_json(*command: str) -> tuple[Any, float]:
    """What a command of the toolkit prints, and the seconds that it took."""
    begun = time.perf_counter()
    toolkit = str(Path(sys.executable).with_name("toolkit"))
    done = subprocess.run([toolkit, *command, "--json"], stdout=subprocess.PIPE, check=True)
    return orjson.loads(done.stdout), time.perf_counter() - begun


def main() -> None:
    """Tune, compile and compare the networks that are named (default: all)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], default=[])
    parser.add_argument("--seconds", type=float, nargs="+", default=[300.0], help="of tune")
    parser.add_argument("--compare-seconds", type=float, default=60.0)
    parser.add_argument("--tolerance", type=float, default=0.0)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp())
    models = [word for model in given.model for word in ("--model", model)]
    for name in given.networks or NETWORKS:
        folder, wall_s = out / name, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        path, tuned = folder / f"{name}.onnx", str(folder / "tuned")
        onnx.save(NETWORKS[name](), str(path))
        for seconds in given.seconds:
            searched, tune_s = run_json(
                "tune", "--workload", str(path), "--seconds", str(seconds),
                "--tolerance", str(given.tolerance), "--out", tuned, *models,
            )  # fmt: skip
            made = folder / f"compiled-{seconds:g}"
            begun = time.time()
            result, _ = run_json(
                "compile", str(path), "--database", tuned, "--out", str(made),
                "--seconds", str(given.compare_seconds),
            )  # fmt: skip
            wall_s += tune_s + (made / "run.py").stat().st_mtime - begun
            row = {
                "network": name,
                "tasks": len(searched["tasks"]),
                "trials": searched["trials"],
                "tune_s": round(tune_s, 1),
                "wall_s": round(wall_s, 1),
                "layout": result["layout"],
                "tuned": f"{result['tuned']} of {result['functions']}",
                "latency_ms": round(1e3 * result["latency_s"], 3),
                "run_py_ms": run_py_ms(made),
                "sum_of_tasks_ms": round(1e3 * (searched["weighted_latency_s"] or float("nan")), 3),
                **{
                    other["against"]: [
                        round(1e3 * other["latency_s"], 3),
                        *(round(one, 3) for one in (other["ratio"], *(other["interval"] or []))),
                    ]
                    for other in result["against"]
                },
                "difference": result["difference"],
                "slowest": [
                    [kernel["kernel"], round(1e3 * kernel["seconds"], 3)]
                    for kernel in result["kernels"][:6]
                ],
                "warnings": searched["warnings"] + result["warnings"],
            }
            print(orjson.dumps(row).decode(), flush=True)


if __name__ == "__main__":
    main()
