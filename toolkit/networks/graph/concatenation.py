"""Concatenations as copies: one loop an input, each into its part of the output.

TVM's own concatenation asks at every element which input it comes from, which no schedule
vectorises well. Where its result goes straight into an elementwise operator it stays: there it
fuses, and the copies would cost a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

FUSED = ("add", "subtract", "multiply", "divide", "clip", "relu", "relu6", "gelu", "silu", "tanh",
         "sigmoid", "exp", "erf", "sqrt", "rsqrt", "negative", "abs", "maximum", "minimum", "power",
         "leakyrelu", "prelu", "batch_norm", "astype", "round", "where")  # fmt: skip
"""Operators, by the last part of their name, that a concatenation fuses into."""


def concatenate_by_copies(module: tvm.IRModule) -> tvm.IRModule:
    """Replace concatenations whose users are no elementwise operators by copies."""
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            module = _Copies(module, _into_elementwise(function)).run(name, function)
    return module


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

    def run(self, name: tvm.ir.GlobalVar, function: relax.Function) -> tvm.IRModule:
        """Rewrite a function of the module."""
        self.builder_.update_func(name, self.visit_expr(function))
        return self.builder_.get()

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
