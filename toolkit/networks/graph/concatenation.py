"""Concatenations: as sums of convolutions, or as copies, one loop an input.

TVM's own concatenation asks at every element which input it comes from, which no schedule
vectorises well. Where its result goes straight into an elementwise operator it stays: there it
fuses, and the copies would cost a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

from toolkit.networks.graph.chains import extents, results_of, users_of
from toolkit.networks.graph.mutate import mutate_functions

FUSED = ("add", "subtract", "multiply", "divide", "clip", "relu", "relu6", "gelu", "silu", "tanh",
         "sigmoid", "exp", "erf", "sqrt", "rsqrt", "negative", "abs", "maximum", "minimum", "power",
         "leakyrelu", "prelu", "batch_norm", "astype", "round", "where")  # fmt: skip
"""Operators, by the last part of their name, that a concatenation fuses into."""


def convolve_before_concatenation(module: tvm.IRModule) -> tvm.IRModule:
    """Write a convolution of a concatenation as the sum of convolutions of its parts.

    Channels come first. Only where the concatenation has no other use, and the convolution has at
    most half as many channels as it: then the sums cost less than the copy that is saved.
    SqueezeNet spends a sixth of its time in such copies.
    """
    made = mutate_functions(module, lambda at, one: _Sums(at, _convolved_once(one)))
    t = relax.transform
    # Sums have two names now; ``ConvertLayout`` stops at a second one.
    passes = [t.Normalize(), t.CanonicalizeBindings(), t.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(made)


def _convolved_once(function: relax.Function) -> dict[Any, list[Any]]:
    """Concatenations along channels with one use, a convolution: their parts, by its call."""
    values = relax.analysis.get_var2val(function)
    users, results = users_of(values), results_of(function)
    found = {}
    for variable, call in values.items():
        of = users.get(variable, [])
        if not _calls(call, "relax.concat") or variable in results or len(of) != 1:
            continue
        parts = values.get(call.args[0], call.args[0])
        if call.attrs.axis == 1 and isinstance(parts, relax.Tuple) and _of_parts(values[of[0]]):
            found[values[of[0]]] = list(parts.fields)
    return found


def _calls(value: Any, name: str) -> bool:
    return isinstance(value, relax.Call) and value.op == tvm.ir.Op.get(name)


def _of_parts(call: Any) -> bool:
    """Whether it is a convolution, in one group, of half as many channels as it is given."""
    if not _calls(call, "relax.nn.conv2d") or int(call.attrs.groups) != 1:
        return False
    layouts = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    if layouts != ("NCHW", "OIHW") or not isinstance(call.args[1], tvm.ir.expr.GenericConst):
        return False
    filters, channels = call.args[1].value.numpy().shape[:2]
    return bool(2 * filters <= channels)


@mutator
class _Sums(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, parts: dict[Any, list[Any]]) -> None:
        super().__init__(module)
        self._parts = parts

    def visit_call_(self, call: Any) -> Any:
        """Put a sum in the place of a convolution, the first part added to the last."""
        visited = self.visit_expr_post_order(call)
        parts = self._parts.get(call)
        if parts is None:
            return visited
        cuts = np.cumsum([extents(part)[1] for part in parts])[:-1]
        weights = np.split(call.args[1].value.numpy(), cuts, axis=1)
        total = None
        for part, weight in zip(parts, weights, strict=True):
            one = relax.op.nn.conv2d(
                self.visit_expr(part),
                relax.const(np.ascontiguousarray(weight)),
                **{name: call.attrs[name] for name in ("strides", "padding", "dilation")},
            )
            one = self.builder_.emit(one)
            total = one if total is None else self.builder_.emit(relax.op.add(one, total))
        return total


def concatenate_by_copies(module: tvm.IRModule) -> tvm.IRModule:
    """Replace concatenations whose users are no elementwise operators by copies."""
    return mutate_functions(module, lambda at, one: _Copies(at, _into_elementwise(one)))


def _into_elementwise(function: relax.Function) -> list[Any]:
    """Results that an elementwise operator uses, as the calls that compute them."""
    values = relax.analysis.get_var2val(function)
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op):
            name = str(node.op.name).rpartition(".")[2]
            used = node.args if name in FUSED else ()
            found.extend(values[arg] for arg in used if arg in values)

    relax.analysis.post_order_visit(function, visit)
    return found


@mutator
class _Copies(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, kept: list[Any]) -> None:
        super().__init__(module)
        self._kept = kept

    def visit_call_(self, call: Any) -> Any:
        """Put copies in the place of a concatenation of known shapes."""
        visited = self.visit_expr_post_order(call)
        if visited.op != tvm.ir.Op.get("relax.concat") or any(map(call.same_as, self._kept)):
            return visited
        parts = visited.args[0]
        if isinstance(parts, relax.Var):
            parts = self.lookup_binding(parts)
        if not isinstance(parts, relax.Tuple):
            return visited
        shapes = [[int(extent) for extent in part.ty.shape.values] for part in parts.fields]
        axis = int(call.attrs.axis or 0) % len(shapes[0])
        function = self.builder_.add_func(copies(shapes, axis, str(call.ty.dtype)), "concatenate")
        return relax.call_tir(function, list(parts.fields), call.ty)


def copies(shapes: Sequence[Sequence[int]], axis: int, dtype: str) -> Any:
    """A function that copies inputs of these shapes beside each other along an axis."""
    whole = list(shapes[0])
    whole[axis] = sum(shape[axis] for shape in shapes)
    with IRBuilder() as builder, build.prim_func(is_private=True, s_tir=True):
        build.func_attr({"tirx.noalias": True})
        parts = [
            build.arg(f"part{place}", build.buffer(list(shape), dtype))
            for place, shape in enumerate(shapes)
        ]
        out = build.arg("out", build.buffer(whole, dtype))
        offset = 0
        for place, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
            _copy(part, out, shape, axis, offset, f"copy{place}")
            offset += shape[axis]
    return builder.get()


def _copy(part: Any, out: Any, shape: Sequence[int], axis: int, offset: int, name: str) -> None:
    with build.grid(*shape) as loops, build.sblock(name):
        at = build.axis.remap("S" * len(shape), list(loops))
        to = [one + offset if place == axis else one for place, one in enumerate(at)]
        build.reads(part[tuple(at)])
        build.writes(out[tuple(to)])
        build.buffer_store(out, part[tuple(at)], to)
