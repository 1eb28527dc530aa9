"""Prepares a network's graph: what is folded, in which layout, what is fused, what is packed.

The passes are TVM's (``static_shape_tuning_pipeline`` of ``relax/pipeline.py``, TVM 0.27), with
batch norms folded, a layout chosen, and ``erf``, ``exp`` and ``tanh`` as polynomials
(``FastMathTransform``): as library calls, one an element, they cost more than the products around
them. Outputs differ by about 1e-6 of their range; where more is allowed, Winograd's convolutions
are taken (``winograd``). The tasks of a graph that went through any pass
again have other hashes, and no record fits them: what is tuned is what is compiled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

from toolkit.errors import LiveError
from toolkit.live.measure.machine import tvm_target
from toolkit.networks.graph.concatenation import concatenate_by_copies
from toolkit.networks.graph.constants import fold_constants
from toolkit.networks.graph.winograd import with_winograd

Layout = Literal["auto", "NCHW", "NHWC"]

NHWC = {"relax.nn.conv2d": ["NHWC", "HWIO"]}

TRANSPOSES = 0.1
"""NHWC is taken where it leaves at most so many transposes a convolution (and four) behind."""

CACHE_BYTES = 24 * 2**20
"""Weights of smaller networks are still in the last cache when the network runs again."""


@dataclass(frozen=True)
class Graph:
    """A network as it is tuned and compiled.

    Attributes
    ----------
    name
        Of the model.
    module
        Relax ``main`` that calls fused functions; its weights are constants whose layout is free.
    layout
        Of its convolutions.
    weight_bytes
        Size of all constants.
    tolerance
        Error of its outputs, as a share of their range, that was allowed.
    """

    name: str
    module: tvm.IRModule
    layout: str
    weight_bytes: int
    tolerance: float = 0.0


def prepare(
    module: tvm.IRModule, target: str, name: str, layout: Layout = "auto", tolerance: float = 0.0
) -> Graph:
    """Turn an imported network into what is tuned and compiled.

    Parameters
    ----------
    tolerance
        Error of the outputs, as a share of their range, up to which algorithms are taken that round
        differently: 1e-5 or 1e-4 allow Winograd's convolutions of two sizes.

    Raises
    ------
    LiveError
        When TVM cannot lower it, or cannot give it the layout that was asked for.
    """
    made = tvm_target(target)
    t = relax.transform
    try:
        with made:
            plain = t.FoldConstant()(fold_constants(module))
            plain = t.DecomposeOpsForInference()(t.FoldBatchnormToConv2D()(plain))
            plain = _clips_as_relus(_batch_norms(fold_constants(plain)))
            chosen, plain = _laid_out(plain, layout)
            plain = rewritten(plain)
            if tolerance > 0:
                in_cache = _constant_bytes(plain) <= CACHE_BYTES
                plain = with_winograd(plain, tolerance, in_cache)
            plain = concatenate_by_copies(plain)
            passes = [
                t.CanonicalizeBindings(),
                t.FoldConstant(),
                t.FastMathTransform(),
                t.LegalizeOps(),
                t.AnnotateTIROpPattern(),
                t.FoldConstant(),
                t.FuseOps(),
                t.FuseTIR(),
                t.AttachAttrLayoutFreeBuffers(),
            ]
            lowered = tvm.transform.Sequential(passes)(plain)
    except LiveError:
        raise
    except Exception as error:  # TVM's errors have no type in common
        raise LiveError(
            f"TVM cannot lower the network {name!r}: {said(error)[:200]}",
            cure="its shapes must be known: relax.transform.BindSymbolicVars binds dynamic ones",
        ) from None
    return Graph(name, lowered, chosen, _constant_bytes(lowered), tolerance)


def _laid_out(module: tvm.IRModule, layout: Layout) -> tuple[str, tvm.IRModule]:
    """Convert to channels last where convolutions gain by it: where few transposes remain."""
    before = operators(module)
    convolutions = before["relax.nn.conv2d"]
    if layout == "NCHW" or not convolutions:
        return "NCHW", module
    try:
        converted = relax.transform.ConvertLayout(NHWC)(module)
        converted = fold_constants(
            _transposed_convolutions(converted)
        )  # weights are transposed now
    except Exception as error:  # an internal error of TVM's
        if layout == "NHWC":
            raise LiveError(
                f"TVM cannot convert the layout: {said(error)[:200]}", cure="give --layout NCHW"
            ) from None
        return "NCHW", module
    added = operators(converted)["relax.permute_dims"] - before["relax.permute_dims"]
    added -= 2 * before["relax.nn.conv2d_transpose"]
    if layout == "NHWC" or added <= 4 + TRANSPOSES * convolutions:
        return "NHWC", converted
    return "NCHW", module


def _transposed_convolutions(module: tvm.IRModule) -> tvm.IRModule:
    """Write transposed convolutions in channels last so that TVM lowers them.

    Where the windows do not overlap it is a product, whose results are put beside each other. Other
    ones get channels first again.
    """
    data, weight = wildcard(), wildcard()

    def lowered(call: relax.Call, found: Any) -> relax.Expr:
        given = call.attrs
        if given.data_layout != "NHWC":
            return call
        apart = [int(one) for one in given.strides]
        product = (
            isinstance(found[weight], tvm.ir.expr.GenericConst)
            and str(given.kernel_layout) == "IOHW"
            and found[weight].value.numpy().shape[2:] == tuple(apart)
            and not any(int(one) for one in (*given.padding, *given.output_padding))
            and all(int(one) == 1 for one in (*given.dilation, given.groups))
        )
        if product:
            return _as_product(found[data], found[weight].value.numpy(), call)
        names = ("strides", "padding", "output_padding", "dilation", "groups", "kernel_layout")
        done = relax.op.nn.conv2d_transpose(
            relax.op.permute_dims(found[data], [0, 3, 1, 2]),
            found[weight],
            **{name: given[name] for name in names},
            data_layout="NCHW",
        )
        return relax.op.permute_dims(done, [0, 2, 3, 1])

    return _rewrite(module, is_op("relax.nn.conv2d_transpose")(data, weight), lowered)


def _as_product(data: relax.Expr, weight: Any, call: relax.Call) -> relax.Expr:
    """A transposed convolution whose stride is its window's size; ``weight`` is (I, O, H, W)."""
    channels, filters, down, across = weight.shape
    images, rows, columns, _ = (int(extent) for extent in call.ty.shape.values)
    rows, columns = rows // down, columns // across
    flat = relax.op.reshape(data, [images * rows * columns, channels])
    matrix = np.ascontiguousarray(weight.transpose(0, 2, 3, 1).reshape(channels, -1))
    apart = relax.op.reshape(
        relax.op.matmul(flat, relax.const(matrix)),
        [images, rows, columns, down, across, filters],
    )
    return relax.op.reshape(relax.op.permute_dims(apart, [0, 1, 3, 2, 4, 5]), call.ty.shape)


def _batch_norms(module: tvm.IRModule) -> tvm.IRModule:
    """Write what is left of batch norms as a product and a sum; no division is left."""
    x, mean, root, scale, shift = wildcard(), is_const(), is_const(), is_const(), is_const()
    centred = is_op("relax.divide")(is_op("relax.subtract")(x, mean), root)
    whole = is_op("relax.add")(is_op("relax.multiply")(centred, scale), shift)

    def product(_: relax.Call, found: Any) -> relax.Expr:
        values = [found[one].value.numpy() for one in (mean, root, scale, shift)]
        factor = values[2] / values[1]
        scaled = relax.op.multiply(found[x], relax.const(factor))
        return relax.op.add(scaled, relax.const(values[3] - values[0] * factor))

    return _rewrite(module, whole, product)


def _clips_as_relus(module: tvm.IRModule) -> tvm.IRModule:
    """Write clips as ``onnx_rewrites`` does: ``ConvertLayout`` has no rule for them.

    ``rewritten`` makes clips of them again.
    """
    x, low, high = wildcard(), wildcard(), wildcard()

    def relus(call: relax.Call, found: Any) -> relax.Expr:
        bounds = [getattr(found[bound], "value", None) for bound in (low, high)]
        if not all(isinstance(bound, int | float) for bound in bounds) or call.ty.ndim != 4:
            return call
        least, most = (float(bound) for bound in bounds)
        kind = str(call.ty.dtype)
        shifted = relax.op.subtract(found[x], relax.const(least, kind)) if least else found[x]
        over = relax.op.subtract(relax.op.nn.relu(shifted), relax.const(most - least, kind))
        clipped = relax.op.subtract(relax.op.nn.relu(shifted), relax.op.nn.relu(over))
        return relax.op.add(clipped, relax.const(least, kind)) if least else clipped

    return _rewrite(module, is_op("relax.clip")(x, low, high), relus)


def _rewrite(module: tvm.IRModule, pattern: Any, replace: Any) -> tvm.IRModule:
    made = tvm.IRModule(module.functions, attrs=module.attrs)
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            made[name] = rewrite_call(pattern, replace, function)
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(made))


def rewritten(module: tvm.IRModule) -> tvm.IRModule:
    """Write what stood in the way of layouts, or would be a call an element, in fewer operators.

    r - relu(r - c) with r = relu(x) is a clip again (``onnx_rewrites``): one stage and not four.
    Powers of quarters are square roots and products, which are vectorised: response normalisation
    raises to 0.75.
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


def _number(constant: Any, beside: Any) -> float | None:
    """The value of a constant that is one number, and gives a result no further dimensions."""
    value = constant.value.numpy()
    return float(value.reshape(-1)[0]) if value.size == 1 and value.ndim <= beside.ty.ndim else None


_POWERS: dict[float | None, Any] = {
    0.25: lambda x: relax.op.sqrt(relax.op.sqrt(x)),
    0.5: relax.op.sqrt,
    0.75: lambda x: relax.op.multiply(relax.op.sqrt(x), relax.op.sqrt(relax.op.sqrt(x))),
    1.5: lambda x: relax.op.multiply(x, relax.op.sqrt(x)),
    2.0: lambda x: relax.op.multiply(x, x),
}


def operators(module: tvm.IRModule) -> Counter[str]:
    """Count the operators that a module's Relax functions call, by name."""
    found: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op):
            found[str(node.op.name)] += 1

    for function in relax_functions(module):
        relax.analysis.post_order_visit(function, visit)
    return found


def relax_functions(module: tvm.IRModule) -> list[relax.Function]:
    """The module's Relax functions."""
    return [f for f in module.functions.values() if isinstance(f, relax.Function)]


def _constant_bytes(module: tvm.IRModule) -> int:
    sizes: list[int] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.expr.GenericConst):
            sizes.append(node.value.numpy().nbytes)

    for function in relax_functions(module):
        relax.analysis.post_order_visit(function, visit)
    return sum(sizes)


def said(error: Exception) -> str:
    """The line of a TVM error that says most: the last one that is no remark."""
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("#")]
    return lines[-1].strip() if lines else type(error).__name__
