"""Rewrites of a Relax graph: operators that block layouts, that TVM cannot lower, or are slow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

from toolkit.networks.graph.functions import extents, known_shape, tidied

LAST = {2: "NHWC", 3: "NDHWC"}
FIRST = {2: "NCHW", 3: "NCDHW"}
"""Layouts of data, by the number of axes of a window."""


def transposed_convolutions(module: tvm.IRModule) -> tvm.IRModule:
    """Write transposed convolutions as convolutions of the inputs.

    TVM's operator puts zeros between the inputs and multiplies by them, and some tuned programs of
    it give wrong outputs. A phase is the set of outputs whose positions have the same remainder
    modulo the stride. One convolution computes all phases, and they are then interleaved. TVM's
    operator stays for grouped and dilated convolutions, and for weights that are not constant. TVM
    lowers it in channels first only.
    """
    data, weight = wildcard(), wildcard()

    def lowered(call: relax.Call, found: Any) -> relax.Expr:
        given, axes = call.attrs, len(call.attrs.strides)
        if given.data_layout not in (LAST[axes], FIRST[axes]):
            return call
        last, places = given.data_layout == LAST[axes], range(1, 1 + axes)
        to_first, to_last = [0, 1 + axes, *places], [0, *(1 + place for place in places), 1]
        inside = slice(1, -1) if last else slice(2, None)
        if isinstance(found[weight], tvm.ir.expr.GenericConst):
            source = found[data] if last else relax.op.permute_dims(found[data], to_last)
            inputs, outputs = (extents(one)[inside] for one in (found[data], call))
            images, array = extents(call)[0], found[weight].value.numpy()
            phases = _as_phases(source, array, given, images, inputs, outputs)
            if phases is not None:
                return phases if last else relax.op.permute_dims(phases, to_first)
        if not last:
            return call
        names = ("strides", "padding", "output_padding", "dilation", "groups", "kernel_layout")
        done = getattr(relax.op.nn, f"conv{axes}d_transpose")(
            relax.op.permute_dims(found[data], to_first),
            found[weight],
            **{name: given[name] for name in names},
            data_layout=FIRST[axes],
        )
        return relax.op.permute_dims(done, to_last)

    for axes in LAST:
        pattern = is_op(f"relax.nn.conv{axes}d_transpose")(data, weight)
        module = _rewrite(module, pattern, lowered)
    return module


def _as_phases(
    data: relax.Expr, weight: Any, given: Any, images: int, inputs: list[int], outputs: list[int]
) -> relax.Expr | None:
    """Return a transposed convolution in channels last as one convolution; ``None`` if impossible.

    Its window covers the inputs of all positions of a group (``_groups``). ``weight`` has the shape
    (I, O, ...). ``inputs`` and ``outputs`` are extents of data and result without images and
    channels.
    """
    axes = len(outputs)
    plain = int(given.groups) == 1 and all(int(one) == 1 for one in given.dilation)
    if not plain or not str(given.kernel_layout).startswith("IO"):
        return None
    (channels, filters, *kernel), kind = weight.shape, str(weight.dtype)
    strides = [int(one) for one in given.strides]
    sizes = zip(kernel, strides, map(int, given.padding), inputs, outputs, strict=False)
    groups = [found for each in sizes if (found := _groups(*each))]
    if len(groups) < axes:
        return None
    matrix = np.moveaxis(weight, (0, 1), (-2, -1))
    for axis, (found, taps, stride) in enumerate(zip(groups, kernel, strides, strict=True)):
        # (offsets, phases) instead of the window's axis.
        places = [[found.begin + p - d * stride for p in range(stride)] for d in found.offsets]
        chosen = np.take(matrix, np.clip(places, 0, taps - 1), axis=2 * axis)
        inside = np.array([[0 <= one < taps for one in row] for row in places], dtype=weight.dtype)
        matrix = chosen * inside.reshape(*inside.shape, *[1] * (chosen.ndim - 2 * axis - 2))
    counts, cuts = [one.number for one in groups], [one.cut for one in groups]
    padding = [*(one.before for one in groups), *(one.after for one in groups)]
    # (offset, phase) per axis, then channels and filters: windows first, phases next to filters.
    order = [*range(0, 2 * axes, 2), 2 * axes, *range(1, 2 * axes, 2), 2 * axes + 1]
    matrix = np.ascontiguousarray(matrix.transpose(order))
    matrix = matrix.reshape(*matrix.shape[: axes + 1], -1)
    if set(matrix.shape[:axes]) == {1} and not any(padding):
        flat = relax.op.reshape(data, [images * int(np.prod(inputs)), channels])
        done = relax.op.matmul(flat, relax.const(matrix.reshape(channels, -1), kind))
    else:
        done = getattr(relax.op.nn, f"conv{axes}d")(
            data,
            relax.const(matrix, kind),
            padding=padding,
            data_layout=LAST[axes],
            kernel_layout=f"{LAST[axes][1:-1]}IO",
        )
    apart = relax.op.reshape(done, [images, *counts, *strides, filters])
    # Each axis of positions next to the axis of its phases.
    beside = [axis for one in range(1, 1 + axes) for axis in (one, one + axes)]
    apart = relax.op.permute_dims(apart, [0, *beside, 1 + 2 * axes])
    whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
    joined = relax.op.reshape(apart, [images, *whole, filters])
    if whole == outputs:
        return joined
    ends = [cut + extent for cut, extent in zip(cuts, outputs, strict=True)]
    return relax.op.strided_slice(joined, list(range(1, 1 + axes)), cuts, ends)


class _Groups(NamedTuple):
    """Positions of a result, along one axis, in groups of ``stride`` that are computed together.

    Without padding, a position ``u`` takes the input ``i`` by the weight ``u - i * stride``. Group
    ``q`` begins at ``u = q * stride + begin`` and takes the inputs at ``q + offset``. The first
    ``cut`` positions of the first group are not in the result.
    """

    begin: int
    offsets: range
    number: int
    before: int
    after: int
    cut: int


def _groups(taps: int, stride: int, pad: int, inputs: int, extent: int) -> _Groups | None:
    """Return the groups whose windows need the fewest products; ``None`` if inputs were cut off.

    A window of 4 with a stride of 2 needs two inputs per position. Groups that begin at the
    padding, 1, would need three: their first position takes the two before, the second the two
    after.
    """
    found = []
    for begin in range(stride):
        offsets = range(-((taps - 1 - begin) // stride), (begin + stride - 1) // stride + 1)
        first, last = ((place - begin) // stride for place in (pad, pad + extent - 1))
        before, after = -first - offsets[0], last + offsets[-1] - (inputs - 1)
        if min(before, after) >= 0:
            cut = pad - begin - first * stride
            found.append(_Groups(begin, offsets, last - first + 1, before, after, cut))
    return min(found, key=lambda one: (len(one.offsets) * one.number, one.cut), default=None)


def batch_norms(module: tvm.IRModule) -> tvm.IRModule:
    """Write the remainder of batch norms as a product and a sum, without a division."""
    x, mean, root, scale, shift = wildcard(), is_const(), is_const(), is_const(), is_const()
    centred = is_op("relax.divide")(is_op("relax.subtract")(x, mean), root)
    whole = is_op("relax.add")(is_op("relax.multiply")(centred, scale), shift)

    def product(call: relax.Call, found: Any) -> relax.Expr:
        kind = str(call.ty.dtype)
        if kind.startswith(("int", "uint")):  # integer division truncates
            return call
        at, divisor, by, more = (found[one].value.numpy() for one in (mean, root, scale, shift))
        factor = by / divisor
        return found[x] * relax.const(factor, kind) + relax.const(more - at * factor, kind)

    return _rewrite(module, whole, product)


def clips_as_relus(module: tvm.IRModule) -> tvm.IRModule:
    """Write clips with lower bound 0 as ``onnx_rewrites`` does: ``ConvertLayout`` cannot do clips.

    ``clips_and_roots`` turns them into clips again.
    """
    x, low, high = wildcard(), wildcard(), wildcard()

    def relus(call: relax.Call, found: Any) -> relax.Expr:
        numbers = tvm.tirx.FloatImm, tvm.tirx.IntImm
        if not all(isinstance(found[bound], numbers) for bound in (low, high)) or call.ty.ndim != 4:
            return call
        least, most, kind = float(found[low].value), float(found[high].value), str(call.ty.dtype)
        # Other lower bounds would need a shift, which rounds; integers may wrap around.
        if least != 0 or not np.isfinite(most) or not kind.startswith("float"):
            return call
        relu = relax.op.nn.relu(found[x])
        return relu - relax.op.nn.relu(relu - relax.const(most, kind))

    return _rewrite(module, is_op("relax.clip")(x, low, high), relus)


def slices(module: tvm.IRModule) -> tvm.IRModule:
    """Write gathers of constant indices, one or evenly spaced, as slices, which fuse.

    Exporters write the parts of a stacked query, key and value as such gathers.
    """
    x, indices = wildcard(), is_const()

    def sliced(call: relax.Call, found: Any) -> relax.Expr:
        shape, named = getattr(found[x].ty.shape, "values", None), found[indices].value.numpy()
        if shape is None or call.attrs.axis is None or named.ndim > 1 or not named.size:
            return call
        axis = int(call.attrs.axis) % len(shape)
        extent = getattr(shape[axis], "value", 0)
        flat = named.reshape(-1).astype("int64")
        flat = np.where(flat < 0, flat + extent, flat)
        steps = set(np.diff(flat).tolist()) or {1}
        if len(steps) > 1 or min(steps) < 1 or flat[0] < 0 or flat[-1] >= extent:
            return call
        bounds = [int(flat[0])], [int(flat[-1]) + 1], [int(min(steps))]
        part = relax.op.strided_slice(found[x], [axis], *bounds)
        return part if named.ndim else relax.op.reshape(part, call.ty.shape)

    return _rewrite(module, is_op("relax.take")(x, indices), sliced)


def _rewrite(module: tvm.IRModule, pattern: Any, replace: Any) -> tvm.IRModule:
    def replaced(call: Any, found: Any) -> Any:
        # The pattern also matches a second name of a result.
        return replace(call, found) if isinstance(call, relax.Call) else call

    made = tvm.IRModule(module.functions, attrs=module.attrs)
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            made[name] = rewrite_call(pattern, replaced, function)
    return tidied(made)


def clips_and_roots(module: tvm.IRModule) -> tvm.IRModule:
    """Restore clips that layouts needed as relus, and write some powers as roots and products.

    r - relu(r - c) with r = relu(x) is a clip again (``onnx_rewrites``): one stage instead of four.
    Powers of 0.25, 0.5, 0.75, 1.5, 2 and 3 become square roots and products. These are vectorised,
    while a power is a call per element: response normalisation raises to 0.75, GELU to 3.
    """
    x, limit = wildcard(), is_const()
    relu = is_op("relax.nn.relu")(x)
    excess = is_op("relax.nn.relu")(is_op("relax.subtract")(relu, limit))

    def clip(call: relax.Call, found: Any) -> relax.Expr:
        bound = _number(found[limit], found[x])
        return call if bound is None else relax.op.clip(found[x], 0, bound)

    def roots(call: relax.Call, found: Any) -> relax.Expr:
        exponent = _number(found[limit], found[x])
        return _POWERS[exponent](found[x]) if exponent in _POWERS else call

    clipped = _rewrite(module, is_op("relax.subtract")(relu, excess), clip)
    return _rewrite(clipped, is_op("relax.power")(x, limit), roots)


LARGE_MEAN = 1 << 17
"""Elements from which a mean over rows and columns is computed in two steps."""


def large_means(module: tvm.IRModule) -> tvm.IRModule:
    """Write large means over rows and columns, in channels last, as means of the rows' means.

    Threads can then share the rows, and sums stay in registers. TVM's rule splits a single
    reduction into partial sums, whose programs are slow to build and to run.
    """
    x = wildcard()

    def stepwise(call: relax.Call, found: Any) -> relax.Expr:
        given, shape = call.attrs, known_shape(found[x]) or []
        if given.axis is None or len(shape) != 4:
            return call
        over = sorted(int(axis) % 4 for axis in given.axis)
        if over != [1, 2] or np.prod(shape) < LARGE_MEAN or min(shape[1:3]) < 2:
            return call
        rows = relax.op.mean(found[x], axis=[2], keepdims=bool(given.keepdims))
        return relax.op.mean(rows, axis=[1], keepdims=bool(given.keepdims))

    return _rewrite(module, is_op("relax.mean")(x), stepwise)


def activations(module: tvm.IRModule) -> tvm.IRModule:
    """Write activations in terms of ``exp``, ``erf`` and ``tanh``.

    ``FastMathTransform`` makes polynomials of these three only. Otherwise a sigmoid, a GELU or a
    Mish would be a library call per element, which costs more than the convolution before it.
    """
    x, zero, one = wildcard(), is_const(), is_const()
    small = is_op("relax.exp")(is_op("relax.negative")(is_op("relax.abs")(x)))
    above = is_op("relax.log")(is_op("relax.add")(one, small))
    softplus = is_op("relax.add")(is_op("relax.maximum")(x, zero), above)
    whole = is_op("relax.nn.softplus")(x).has_attr({"beta": 1.0})
    sigmoid = is_op("relax.sigmoid")(x)
    kinds = {
        is_op("relax.multiply")(x, sigmoid): _silu,
        is_op("relax.multiply")(sigmoid, x): _silu,
        is_op("relax.nn.silu")(x): _silu,
        sigmoid: lambda x: relax.const(1.0) / _one_and_exp_of_minus(x),
        is_op("relax.nn.gelu")(x): _gelu,
        is_op("relax.nn.gelu_tanh")(x): _gelu_tanh,
        is_op("relax.tanh")(softplus): _tanh_of_softplus,
        is_op("relax.tanh")(whole): _tanh_of_softplus,
    }
    for pattern, written in kinds.items():

        def rewritten(call: relax.Call, found: Any, written: Any = written) -> relax.Expr:
            numbers = ((found[c], value) for c, value in ((zero, 0.0), (one, 1.0)) if c in found)
            same = all(_number(constant, found[x]) == value for constant, value in numbers)
            return written(found[x]) if same and str(call.ty.dtype) == "float32" else call

        module = _rewrite(module, pattern, rewritten)
    return module


def _silu(x: relax.Expr) -> relax.Expr:
    return x / _one_and_exp_of_minus(x)


def _one_and_exp_of_minus(x: relax.Expr) -> relax.Expr:
    return relax.op.exp(-x) + relax.const(1.0)


def _gelu(x: relax.Expr) -> relax.Expr:
    error = relax.op.erf(x * relax.const(0.5**0.5))
    return x * (error * relax.const(0.5) + relax.const(0.5))


def _gelu_tanh(x: relax.Expr) -> relax.Expr:
    inner = x * (x * x * relax.const(0.044715) + relax.const(1.0))
    bent = relax.op.tanh(inner * relax.const((2.0 / np.pi) ** 0.5))
    return x * relax.const(0.5) * (bent + relax.const(1.0))


def _tanh_of_softplus(x: relax.Expr) -> relax.Expr:
    """Return tanh(log(1 + e)), e = exp(x): n / (n + 2) with n = e (e + 2); 1 from x = 20 on."""
    e = relax.op.exp(relax.op.minimum(x, relax.const(20.0)))
    n = e * (e + relax.const(2.0))
    return n / (n + relax.const(2.0))


def _number(constant: Any, beside: Any) -> float | None:
    """Return a constant's value if it is one number and adds no dimensions to the result."""
    value = constant.value.numpy()
    return float(value.reshape(-1)[0]) if value.size == 1 and value.ndim <= beside.ty.ndim else None


_POWERS: dict[float | None, Any] = {
    0.25: lambda x: relax.op.sqrt(relax.op.sqrt(x)),
    0.5: relax.op.sqrt,
    0.75: lambda x: relax.op.sqrt(x) * relax.op.sqrt(relax.op.sqrt(x)),
    1.5: lambda x: x * relax.op.sqrt(x),
    2.0: lambda x: x * x,
    3.0: lambda x: x * (x * x),
}
