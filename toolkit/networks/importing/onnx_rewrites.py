"""Rewrites of an ONNX graph, so that the operators that TVM's importer makes of it fuse.

Without them, ``Sum`` would become a stack and a sum over five axes, and ``Clip`` two calls that no
layout passes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def rewrite(model: Any, onnx: Any) -> None:
    """Apply all rewrites to a model in place."""
    values = _constants(model, onnx)
    nodes: list[Any] = []
    for node in model.graph.node:
        if node.op_type == "Sum" and len(node.input) > 1:
            nodes += _additions(node, onnx)
        elif node.op_type == "Clip":
            nodes += _relus(node, values, model, onnx)
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _constants(model: Any, onnx: Any) -> dict[str, Any]:
    """Return constant tensors as arrays, by name."""
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            values[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return values


def _additions(node: Any, onnx: Any) -> Iterator[Any]:
    """Yield the additions that a ``Sum`` is."""
    total = node.input[0]
    for place, term in enumerate(node.input[1:], start=2):
        name = node.output[0] if place == len(node.input) else f"{node.output[0]}__{place}"
        yield onnx.helper.make_node("Add", [total, term], [name])
        total = name


def _relus(node: Any, values: Mapping[str, Any], model: Any, onnx: Any) -> list[Any]:
    """Write ``Clip`` between 0 and c as r - relu(r - c) with r = relu(x), which fuses."""
    bounds = _bounds(node, values)
    # Unsigned r - c would wrap around.
    if bounds is None or bounds[0] != 0 or bounds[1].dtype.kind == "u":
        return [node]
    out, make = node.output[0], onnx.helper.make_node
    # x has the type of the bound; attributes of old versions are float32.
    limit = onnx.numpy_helper.from_array(bounds[1], f"{out}__limit")
    model.graph.initializer.append(limit)
    return [
        make("Relu", [node.input[0]], [f"{out}__relu"]),
        make("Sub", [f"{out}__relu", limit.name], [f"{out}__over"]),
        make("Relu", [f"{out}__over"], [f"{out}__excess"]),
        make("Sub", [f"{out}__relu", f"{out}__excess"], [out]),
    ]


def _bounds(node: Any, values: Mapping[str, Any]) -> tuple[float, Any] | None:
    """Return the lower bound as a number, the upper as an array; ``None`` if not constant."""
    given = {a.name: np.float32(a.f) for a in node.attribute}  # before operator set 11
    if {"min", "max"} <= given.keys():
        return float(given["min"]), np.asarray(given["max"])
    ends = [values.get(name) for name in node.input[1:3]]
    if len(ends) < 2 or ends[0] is None or ends[1] is None or ends[0].size != 1:
        return None
    return float(ends[0]), np.asarray(ends[1])
