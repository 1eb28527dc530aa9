"""Joins transposes and reshapes that follow each other, and moves transposes so that they meet.

Exporters and ``ConvertLayout`` put transposes around operators with another order of axes. Two of
them would often cancel, if there were no reshape or addition between them. A chain of transposes
and reshapes, written from the factors of its ``Movement``, needs at most one transpose.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.functions import UNKNOWN, behind, extents, mutate, named, tidied
from toolkit.networks.graph.movements import (
    CONCATENATE,
    SLICE,
    TRANSPOSE,
    Movement,
    axes_of,
    inverse,
    movement_of,
)
from toolkit.networks.graph.reshapes import MOVES, ONE, RESHAPES, TWO

PAD = "relax.nn.pad"
MEANS = "relax.nn.avg_pool3d"
"""A mean over neighbouring channels: the importer writes local response normalisation with it."""


def join_transposes(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite a module's Relax functions; unknown shapes stay as they are."""
    apart = mutate(module, lambda at, _: _Joiner(at, apart=True))
    # A transpose that has not met another one is joined again.
    return tidied(mutate(apart, lambda at, _: _Joiner(at, apart=False)))


@mutator
class _Joiner(PyExprMutator):  # type: ignore[misc]
    """Visits bindings in order, so that the operators before a call are joined already."""

    def __init__(self, module: tvm.IRModule, *, apart: bool) -> None:
        super().__init__(module)
        self._apart = apart  # split the transpose, which may meet others, off

    def visit_call_(self, call: Any) -> Any:
        """Join a transpose or reshape with earlier ones; move a transpose behind the call."""
        visited = self.visit_expr_post_order(call)
        name = named(visited)
        with suppress(*UNKNOWN):
            if name == "relax.call_tir":
                return self._copied(visited)
            if _does_nothing(visited, name):
                return visited.args[0]
            if name in MOVES:
                return self._joined(visited)
            if name in ONE | TWO | {"relax.power"}:
                return self._behind(visited, name)
            if name in (PAD, SLICE, MEANS):
                return self._of_some_axes(visited, name)
            if name == CONCATENATE:
                return self._concatenated(visited)
        return visited

    def _copied(self, call: Any) -> Any:
        """Return the source if an importer's function only copies it, as an empty padding does."""
        function, given = self.builder_.get()[call.args[0]], call.args[1].fields
        same = len(given) == 1 and len(function.params) == 2
        same = same and extents(given[0]) == extents(call)
        return given[0] if same and relax.analysis.has_reshape_pattern(function) else call

    def _chain(self, expression: Any) -> tuple[Any, list[Any]]:
        """Return the start of a chain of transposes and reshapes, and its calls, last one first."""
        chain: list[Any] = []
        while True:
            value = behind(expression, self.lookup_binding)
            if named(value) not in MOVES:
                return expression, chain
            chain.append(value)
            expression = value.args[0]

    def _movement(self, expression: Any) -> tuple[Any, Movement | None]:
        """Return the source of a transpose, perhaps with reshapes, and its movement."""
        source, chain = self._chain(expression)
        movement = movement_of(extents(source), chain[::-1]) if chain else None
        return source, movement if movement and movement.transposes() else None

    def _joined(self, call: Any) -> Any:
        source, chain = self._chain(call.args[0])
        chain = [call, *chain]
        movement = movement_of(extents(source), chain[::-1])
        if movement is None or (len(chain) < 2 and not self._apart):
            return call
        transposes = sum(named(one) == TRANSPOSE for one in chain)
        fewer = (movement.transposes(), len(movement.steps())) < (transposes, len(chain))
        return self._moved(source, movement) if fewer or self._apart else call

    def _moved(self, source: Any, movement: Movement) -> Any:
        steps = movement.steps()
        if self._apart and movement.transposes():
            inner, axes = movement.apart()
            steps = [*inner.steps(), (relax.op.permute_dims, axes)]
        for operator, given in steps[:-1]:
            source = self.builder_.emit(operator(source, given))
        return steps[-1][0](source, steps[-1][1]) if steps else source

    def _behind(self, call: Any, name: str) -> Any:
        """Apply the call to the sources, and move the result."""
        shape, tensors = extents(call), 1 if name in ONE else 2
        found = [self._movement(one) for one in call.args[:tensors]]
        moved = [one for _, one in found if one is not None]
        if not moved:
            return call
        movement = next((one for one in moved if one.as_transpose() is not None), moved[0])
        axes, args = movement.as_transpose(), []
        for one, (source, its) in zip(call.args, found, strict=False):
            if its is not None:
                same = its == movement and its.after == shape
                if not same and (axes is None or its.as_transpose() != axes):
                    inner, order = its.apart()
                    if axes is None or order != axes or inner.after != movement.before:
                        return call
                    # A product of rows, used as an image: its reshape moves on alone.
                    source = self.builder_.emit(relax.op.reshape(source, inner.after))
                args.append(source)
            elif isinstance(one, tvm.ir.expr.GenericConst):
                array = one.value.numpy()
                before = movement.undone(array)
                if before.size > array.size:
                    return call
                args.append(relax.const(before, str(one.ty.dtype)))
            else:
                return call
        done = self.builder_.emit(relax.Call(call.op, [*args, *call.args[tensors:]], call.attrs))
        return self._moved(done, movement) if axes is None else relax.op.permute_dims(done, axes)

    def _of_some_axes(self, call: Any, name: str) -> Any:
        """Pad, cut or take means before the transpose."""
        source, axes = self._transposed(call.args[0])
        if axes is None:
            return call
        if name == MEANS:
            done = _means(source, call.attrs, axes)
            if done is None:
                return call
        elif name == PAD:
            widths = [int(one) for one in call.attrs.pad_width]
            before = [width for at in inverse(axes) for width in widths[2 * at : 2 * at + 2]]
            done = relax.op.nn.pad(source, before, call.attrs.pad_mode, call.attrs.pad_value)
        else:
            along, *bounds = ([int(one.value) for one in each.fields] for each in call.args[1:])
            cut = [axes[axis % len(axes)] for axis in along]
            done = relax.op.strided_slice(source, cut, *bounds)
        return relax.op.permute_dims(self.builder_.emit(done), axes)

    def _concatenated(self, call: Any) -> Any:
        parts = behind(call.args[0], self.lookup_binding)
        found = [self._transposed(one) for one in parts.fields]
        axes = found[0][1]
        if axes is None or call.attrs.axis is None or any(its != axes for _, its in found):
            return call
        sources = [source for source, _ in found]
        along = axes[int(call.attrs.axis) % len(axes)]
        return relax.op.permute_dims(self.builder_.emit(relax.op.concat(sources, along)), axes)

    def _transposed(self, expression: Any) -> tuple[Any, list[int] | None]:
        """Return the source and the axes of a transpose; axes ``None`` for other expressions."""
        _, chain = self._chain(expression)
        if not chain or named(chain[0]) != TRANSPOSE:
            return expression, None
        return chain[0].args[0], axes_of(chain[0])


def _means(source: Any, given: Any, axes: list[int]) -> Any:
    """Return means over windows before a transpose of depth, rows and columns; else ``None``."""
    if axes[:2] != [0, 1] or str(given.layout) != "NCDHW" or str(given.out_layout) != "NCDHW":
        return None
    back = [at - 2 for at in inverse(axes)[2:]]
    names = ("pool_size", "strides", "dilation")
    sizes = {name: [int(given[name][at]) for at in back] for name in names}
    ends = [int(given.padding[at + side]) for side in (0, 3) for at in back]
    flags = {name: bool(given[name]) for name in ("ceil_mode", "count_include_pad")}
    return relax.op.nn.avg_pool3d(source, padding=ends, **sizes, **flags)


def _does_nothing(call: Any, name: str) -> bool:
    """Return whether a call changes nothing: no padding, a slice of all, the same extents."""
    if name == PAD:
        return not any(int(one) for one in call.attrs.pad_width)
    if name == TRANSPOSE:
        return axes_of(call) == list(range(call.ty.ndim))
    if name in RESHAPES or name == "relax.broadcast_to":
        return extents(call) == extents(call.args[0])
    if name == SLICE and extents(call) == extents(call.args[0]):
        steps = call.args[4].fields if len(call.args) > 4 else []
        return all(int(step.value) > 0 for step in steps)  # not reversed
    return False
