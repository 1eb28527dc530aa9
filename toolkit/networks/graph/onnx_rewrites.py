"""Rewrites of an ONNX graph, so that what TVM's importer makes of it fuses.

``Sum`` would become a stack and a sum over five axes, ``Clip`` two calls that no layout runs
through. A convolution of concatenated tensors becomes the sum of their convolutions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def rewrite(model: Any, onnx: Any) -> None:
    """Apply all rewrites to a model in place."""
    _without_sum(model, onnx)
    _clip_as_relu(model, onnx)
    _convolve_before_concat(model, onnx)


def _constants(model: Any, onnx: Any) -> dict[str, Any]:
    """Constant tensors as arrays, by name."""
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            values[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return values


def _without_sum(model: Any, onnx: Any) -> None:
    """Write ``Sum`` as additions."""
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Sum" or len(node.input) < 2:
            nodes.append(node)
            continue
        total = node.input[0]
        for place, term in enumerate(node.input[1:], start=2):
            name = node.output[0] if place == len(node.input) else f"{node.output[0]}__{place}"
            nodes.append(onnx.helper.make_node("Add", [total, term], [name]))
            total = name
    _replace(model, nodes)


def _clip_as_relu(model: Any, onnx: Any) -> None:
    """Write ``Clip`` between 0 and c as r - relu(r - c) with r = relu(x): all of it fuses."""
    values = _constants(model, onnx)
    nodes = []
    for node in model.graph.node:
        bounds = _bounds(node, values, onnx) if node.op_type == "Clip" else None
        if bounds is None or bounds[0] != 0:
            nodes.append(node)
            continue
        out, make = node.output[0], onnx.helper.make_node
        # The type of x is that of the bound; attributes of old versions are for float32.
        limit = onnx.numpy_helper.from_array(bounds[1], f"{out}__limit")
        model.graph.initializer.append(limit)
        nodes += [
            make("Relu", [node.input[0]], [f"{out}__relu"]),
            make("Sub", [f"{out}__relu", limit.name], [f"{out}__over"]),
            make("Relu", [f"{out}__over"], [f"{out}__excess"]),
            make("Sub", [f"{out}__relu", f"{out}__excess"], [out]),
        ]
    _replace(model, nodes)


def _bounds(node: Any, values: Mapping[str, Any], onnx: Any) -> tuple[float, Any] | None:
    """Lower bound as a number, upper bound as an array; ``None`` where one is not constant."""
    given = {a.name: np.float32(a.f) for a in node.attribute}  # until operator set 11
    if {"min", "max"} <= given.keys():
        return float(given["min"]), np.asarray(given["max"])
    ends = [values.get(name) for name in node.input[1:3]]
    if len(ends) < 2 or ends[0] is None or ends[1] is None or ends[0].size != 1:
        return None
    return float(ends[0]), np.asarray(ends[1])


def _convolve_before_concat(model: Any, onnx: Any) -> None:
    """Write a convolution of a concatenation as the sum of convolutions of its parts.

    Only where the concatenation has no other use, and the convolution has at most half as many
    channels as it: then the sums cost less than the copy that is saved. SqueezeNet spends a sixth
    of its time in such copies.
    """
    values = _constants(model, onnx)
    uses = Counter(name for node in model.graph.node for name in node.input)
    uses.update(value.name for value in model.graph.output)
    joined = {
        node.output[0]: node
        for node in model.graph.node
        if node.op_type == "Concat"
        and uses[node.output[0]] == 1
        and [a.i for a in node.attribute if a.name == "axis"] == [1]
    }
    inferred = onnx.shape_inference.infer_shapes(model) if joined else model
    channels = {
        value.name: value.type.tensor_type.shape.dim[1].dim_value
        for value in (*inferred.graph.value_info, *inferred.graph.input)
        if len(value.type.tensor_type.shape.dim) > 1
    }
    gone, nodes = set(), []
    for node in model.graph.node:
        source = joined.get(node.input[0]) if node.op_type == "Conv" else None
        weight = None if source is None else values.get(node.input[1])
        widths = [] if source is None else [channels.get(name, 0) for name in source.input]
        # One group alone: its weights have all channels of the input.
        if (
            source is None
            or weight is None
            or sum(widths) != weight.shape[1]
            or 2 * len(weight) > sum(widths)
        ):
            nodes.append(node)
            continue
        gone.add(node.input[0])
        parts = np.split(weight, np.cumsum(widths)[:-1], axis=1)
        nodes += _summed(node, source.input, parts, model, onnx)
    _replace(model, [node for node in nodes if not (set(node.output) & gone)])


def _summed(
    conv: Any, sources: Sequence[str], parts: Sequence[Any], model: Any, onnx: Any
) -> list[Any]:
    """Make convolutions of the sources, each added to the one before; the last has the bias."""
    out, total, made = conv.output[0], "", []
    for place, (source, part) in enumerate(zip(sources, parts, strict=True)):
        weight = onnx.numpy_helper.from_array(np.ascontiguousarray(part), f"{out}__w{place}")
        model.graph.initializer.append(weight)
        last = place == len(parts) - 1
        bias = list(conv.input[2:]) if last else []
        one = onnx.helper.make_node("Conv", [source, weight.name, *bias], [f"{out}__{place}"])
        one.attribute.extend(conv.attribute)
        made.append(one)
        if place:
            name = out if last else f"{out}__sum{place}"
            made.append(onnx.helper.make_node("Add", [one.output[0], total], [name]))
            total = name
        else:
            total = one.output[0]
    return made


def _replace(model: Any, nodes: Sequence[Any]) -> None:
    del model.graph.node[:]
    model.graph.node.extend(nodes)
