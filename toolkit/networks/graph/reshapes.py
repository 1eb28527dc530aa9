"""Moves reshapes behind operators that work element by element or row by row, where they cancel.

A product of a tensor of three dimensions and a matrix is imported as a product of two matrices,
with a reshape before and one after it. Between two layers of a transformer there are only bias,
activation, addition and norm. Behind a reshape none of them fuses with the product, and each is
another pass over memory.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.functions import UNKNOWN, behind, extents, mutate, named, tidied

RESHAPES = {f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten")}

MOVES = {"relax.permute_dims", *RESHAPES}
"""Operators that return the elements of one tensor, in another order or unchanged."""

ONE = {
    *(f"relax.{name}" for name in ("negative", "abs", "exp", "erf", "tanh", "sigmoid", "sqrt")),
    *(f"relax.nn.{name}" for name in ("relu", "gelu", "gelu_tanh", "silu", "leakyrelu")),
    "relax.clip",
}
"""Elementwise operators on one tensor; their other arguments are numbers."""

TWO = {f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "minimum", "maximum")}

LAST = {"relax.nn.layer_norm", "relax.nn.softmax"}
"""Operators along the last dimension, if their axis is that one."""


def move_reshapes(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite a module's Relax functions; unknown shapes stay as they are."""
    return tidied(mutate(module, lambda at, _: _Mover(at)))


@mutator
class _Mover(PyExprMutator):  # type: ignore[misc]
    """Visits bindings in order, so that a reshape moves as far as possible."""

    def visit_call_(self, call: Any) -> Any:
        """Join a reshape with the one before, or move the call before the reshape."""
        visited = self.visit_expr_post_order(call)
        name = named(visited)
        with suppress(*UNKNOWN):
            shape = extents(call)
            if name == "relax.broadcast_to" and extents(visited.args[0]) == shape:
                return visited.args[0]
            if name in RESHAPES:
                return self._joined(visited, shape)
            if name in ONE | TWO | LAST:
                return self._before(visited, name, shape)
        return visited

    def _joined(self, call: Any, shape: list[int]) -> Any:
        source = self._reshaped(call.args[0])
        if source is None:
            return call
        return source if extents(source) == shape else relax.op.reshape(source, shape)

    def _before(self, call: Any, name: str, shape: list[int]) -> Any:
        tensors = 2 if name in TWO else 1
        sources = [self._reshaped(one) for one in call.args[:tensors]]
        flat = next((extents(one) for one in sources if one is not None), None)
        same_rows = bool(flat and shape and flat[-1] == shape[-1])
        if flat is None:
            return call
        if name in LAST and not (same_rows and axes_along(call) == [call.ty.ndim - 1]):
            return call
        args = []
        for one, source in zip(call.args, sources, strict=False):
            if source is not None and extents(source) == flat and extents(one) == shape:
                args.append(source)
            elif (constant := _of_rows(one, len(flat), same_rows)) is not None:
                args.append(constant)
            elif name == "relax.add" and isinstance(one, relax.Var) and extents(one) == shape:
                args.append(self.builder_.emit(relax.op.reshape(one, flat)))
            else:
                return call
        if name in LAST:
            done = _last(call, [*args, *call.args[1:]])
        else:
            done = relax.Call(call.op, [*args, *call.args[tensors:]], call.attrs)
        return relax.op.reshape(self.builder_.emit(done), shape)

    def _reshaped(self, source: Any) -> Any:
        """Return the source of a reshape; ``None`` for other values."""
        value = behind(source, self.lookup_binding)
        found = value.args[0] if named(value) in RESHAPES else None
        return found if isinstance(found, relax.Var) else None


def _of_rows(source: Any, dimensions: int, same_rows: bool) -> Any:
    """Return a constant of one number, or one per column, in ``dimensions`` axes; else ``None``."""
    if not isinstance(source, tvm.ir.expr.GenericConst):
        return None
    array = source.value.numpy()
    if array.size != 1 and not (same_rows and array.ndim and array.shape[-1] == array.size):
        return None
    return relax.const(array.reshape([1] * (dimensions - 1) + [-1]), str(source.ty.dtype))


def axes_along(call: Any) -> list[int]:
    """Return the axes along which a call works; empty: along all of them."""
    if named(call) == "relax.strided_slice":
        given = call.args[1].fields
    elif hasattr(call.attrs, "axes"):
        given = call.attrs.axes
    else:
        axis = call.attrs.axis
        given = () if axis is None else axis if hasattr(axis, "__len__") else (axis,)
    return [int(getattr(axis, "value", axis)) % call.args[0].ty.ndim for axis in given]


def _last(call: Any, args: list[Any]) -> Any:
    if len(args) == 1:
        return relax.op.nn.softmax(args[0], axis=-1)
    given = call.attrs
    return relax.op.nn.layer_norm(
        *args, axes=[-1], epsilon=given.epsilon, center=given.center, scale=given.scale
    )
