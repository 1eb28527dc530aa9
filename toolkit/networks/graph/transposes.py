"""Joins transposes and reshapes that follow each other, and moves transposes to where they meet.

Exporters and ``ConvertLayout`` put transposes around whatever works in another order of axes. Two
of them often cancel, but for a reshape or an addition between them. What a chain of transposes and
reshapes gives is its source read in another order: factors of the source's extents, each with its
stride. Written from these, it takes one transpose at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.chains import extents
from toolkit.networks.graph.mutate import mutate_functions
from toolkit.networks.graph.reshapes import ONE, RESHAPES, TWO

TRANSPOSE, PAD = "relax.permute_dims", "relax.nn.pad"
SLICE, CONCATENATE = "relax.strided_slice", "relax.concat"

Factor = tuple[int, int]
"""Extent and stride, in elements of the source."""


def join_transposes(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite a module's Relax functions; shapes that are not known stay as they are."""
    apart = mutate_functions(module, lambda at, _: _Joiner(at, apart=True))
    # A transpose that has met no other is joined again.
    made = mutate_functions(apart, lambda at, _: _Joiner(at, apart=False))
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(made))


@dataclass(frozen=True)
class Movement:
    """What a chain of transposes and reshapes does.

    Attributes
    ----------
    before, after
        Extents of the source, and of what the chain gives.
    axes
        The factors of the source that each axis of the result consists of, outermost first.
    """

    before: list[int]
    after: list[int]
    axes: list[list[Factor]]

    def factors(self) -> list[Factor]:
        """All factors, in the result's order."""
        return _merged([one for axis in self.axes for one in axis])

    def order(self) -> list[int]:
        """Where in the result the source's factors are, in the source's order."""
        factors = self.factors()
        return sorted(range(len(factors)), key=lambda at: -factors[at][1])

    def transposes(self) -> bool:
        """Whether any factor moved; else the chain is a reshape."""
        return self.order() != list(range(len(self.factors())))

    def apart(self) -> tuple[Movement, list[int]]:
        """The same as what keeps the axes in the source's order, and a transpose after it."""
        innermost, keys = max(self.before, default=1) * _stride([*self.before, 1], 0) + 1, []
        for axis in self.axes:
            innermost = min((stride for _, stride in axis), default=innermost)
            keys.append(innermost)
        order = sorted(range(len(keys)), key=lambda at: -keys[at])
        inner = [self.after[at] for at in order], [self.axes[at] for at in order]
        return Movement(self.before, *inner), _inverse(order)

    def as_transpose(self) -> list[int] | None:
        """The axes of the one transpose that does the same; ``None`` if it takes a reshape."""
        strides = {_stride(self.before, at): at for at, one in enumerate(self.before) if one > 1}
        ones, axes = [at for at, extent in enumerate(self.before) if extent == 1], []
        for extent, axis in zip(self.after, map(_merged, self.axes), strict=True):
            if not axis and ones:
                axes.append(ones.pop(0))
                continue
            at = strides.get(axis[0][1]) if len(axis) == 1 else None
            if at is None or self.before[at] != extent:
                return None
            axes.append(at)
        return axes if sorted(axes) == list(range(len(self.before))) else None

    def steps(self) -> list[tuple[Any, list[int]]]:
        """Operators that do the same, with what they are given: at most one is a transpose."""
        if not self.transposes():
            return [] if self.before == self.after else [(relax.op.reshape, self.after)]
        whole = self.as_transpose()
        if whole is not None:
            return [(relax.op.permute_dims, whole)]
        steps: list[tuple[Any, list[int]]] = []
        order, moved = self.order(), [extent for extent, _ in self.factors()]
        grouped = [moved[at] for at in order]
        axes = _inverse(order)
        if grouped == [one for one in self.before if one > 1]:
            ones = [at for at, one in enumerate(self.before) if one == 1]
            others = [at for at, one in enumerate(self.before) if one > 1]
            axes, moved = [*ones, *(others[at] for at in axes)], [1] * len(ones) + moved
        else:
            steps.append((relax.op.reshape, grouped))
        steps.append((relax.op.permute_dims, axes))
        if moved != self.after:
            steps.append((relax.op.reshape, self.after))
        return steps

    def undone(self, array: Any) -> Any:
        """What an array that is broadcast to the result is before the movement: no larger."""
        whole = np.broadcast_to(array, self.after)
        if not prod(self.before):
            return whole.reshape(self.before)
        moved = [extent for extent, _ in self.factors()]
        source = whole.reshape(moved).transpose(self.order()).reshape(self.before)
        for axis in range(source.ndim):
            first = source.take([0], axis)
            source = (
                first if np.array_equal(np.broadcast_to(first, source.shape), source) else source
            )
        return source


@mutator
class _Joiner(PyExprMutator):  # type: ignore[misc]
    """Visits bindings in order, so that what comes before a call is joined already."""

    def __init__(self, module: tvm.IRModule, *, apart: bool) -> None:
        super().__init__(module)
        self._apart = apart  # the transpose that may meet others from what mixes axes

    def visit_call_(self, call: Any) -> Any:
        """Join a transpose or reshape with those before; let a transpose pass behind the call."""
        visited = self.visit_expr_post_order(call)
        name = _named(visited)
        try:
            if _does_nothing(visited, name):
                return visited.args[0]
            if name == TRANSPOSE or name in RESHAPES:
                return self._joined(visited)
            if name in ONE or name in TWO:
                return self._behind(visited, name)
            if name in (PAD, SLICE):
                return self._of_some_axes(visited, name)
            if name == CONCATENATE:
                return self._concatenated(visited)
        except (AttributeError, TypeError, ValueError):  # a shape that is not known
            pass
        return visited

    def _chain(self, expression: Any) -> tuple[Any, list[Any]]:
        """What a chain of transposes and reshapes begins with, and its calls from the last."""
        chain: list[Any] = []
        while True:
            value = expression
            while isinstance(value, relax.Var):  # another name of one
                value = self.lookup_binding(value)
            if not (_named(value) == TRANSPOSE or _named(value) in RESHAPES):
                return expression, chain
            chain.append(value)
            expression = value.args[0]

    def _movement(self, expression: Any) -> tuple[Any, Movement | None]:
        """The source of a transpose, perhaps with reshapes, and what is done to it."""
        source, chain = self._chain(expression)
        movement = _movement(extents(source), chain[::-1]) if chain else None
        return source, movement if movement and movement.transposes() else None

    def _joined(self, call: Any) -> Any:
        source, chain = self._chain(call.args[0])
        chain = [call, *chain]
        movement = _movement(extents(source), chain[::-1])
        if movement is None or (len(chain) < 2 and not self._apart):
            return call
        steps, transposes = movement.steps(), sum(_named(one) == TRANSPOSE for one in chain)
        fewer = (movement.transposes(), len(steps)) < (transposes, len(chain))
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
        """Do what is called to the sources, and move the result."""
        shape, tensors = extents(call), 2 if name in TWO else 1
        found = [self._movement(one) for one in call.args[:tensors]]
        movement = next((one for _, one in found if one is not None), None)
        if movement is None:
            return call
        axes, args = movement.as_transpose(), []
        for one, (source, its) in zip(call.args, found, strict=False):
            if its is not None:
                same = its == movement and its.after == shape
                if not same and (axes is None or its.as_transpose() != axes):
                    return call
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
        """Pad or cut before the transpose."""
        source, axes = self._transposed(call.args[0])
        if axes is None:
            return call
        if name == PAD:
            widths = [int(one) for one in call.attrs.pad_width]
            before = [width for at in _inverse(axes) for width in widths[2 * at : 2 * at + 2]]
            done = relax.op.nn.pad(source, before, call.attrs.pad_mode, call.attrs.pad_value)
        else:
            named, *bounds = ([int(one.value) for one in each.fields] for each in call.args[1:])
            cut = [axes[axis % len(axes)] for axis in named]
            done = relax.op.strided_slice(source, cut, *bounds)
        return relax.op.permute_dims(self.builder_.emit(done), axes)

    def _concatenated(self, call: Any) -> Any:
        parts = call.args[0]
        while isinstance(parts, relax.Var):
            parts = self.lookup_binding(parts)
        found = [self._transposed(one) for one in parts.fields]
        axes = found[0][1]
        if axes is None or call.attrs.axis is None or any(its != axes for _, its in found):
            return call
        sources = [source for source, _ in found]
        along = axes[int(call.attrs.axis) % len(axes)]
        return relax.op.permute_dims(self.builder_.emit(relax.op.concat(sources, along)), axes)

    def _transposed(self, expression: Any) -> tuple[Any, list[int] | None]:
        """What a transpose is of, and its axes; ``None`` for what is no transpose."""
        _, chain = self._chain(expression)
        if not chain or _named(chain[0]) != TRANSPOSE:
            return expression, None
        return chain[0].args[0], _axes(chain[0])


def _does_nothing(call: Any, name: str) -> bool:
    """Whether a call gives what it is given: no padding, a slice of all, extents as they are."""
    if name == PAD:
        return not any(int(one) for one in call.attrs.pad_width)
    if name == TRANSPOSE:
        return _axes(call) == list(range(call.ty.ndim))
    if name in RESHAPES or name == "relax.broadcast_to":
        return extents(call) == extents(call.args[0])
    if name == SLICE and extents(call) == extents(call.args[0]):
        steps = call.args[4].fields if len(call.args) > 4 else []
        return all(int(step.value) > 0 for step in steps)  # not reversed
    return False


def _named(node: Any) -> str:
    is_operator = isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op)
    return str(node.op.name) if is_operator else ""


def _axes(call: Any) -> list[int]:
    axes = call.attrs.axes
    return list(range(call.ty.ndim))[::-1] if axes is None else [int(one) for one in axes]


def _inverse(axes: Sequence[int]) -> list[int]:
    return sorted(range(len(axes)), key=lambda at: axes[at])


def _stride(shape: list[int], axis: int) -> int:
    return prod(shape[axis + 1 :])


def _movement(before: list[int], chain: Sequence[Any]) -> Movement | None:
    """What calls do one after another; ``None`` where extents do not align."""
    axes = [[(one, _stride(before, at))] if one > 1 else [] for at, one in enumerate(before)]
    after = before
    for call in chain:
        after = extents(call)
        if _named(call) == TRANSPOSE:
            axes = [axes[axis] for axis in _axes(call)]
            continue
        grouped = _grouped([one for axis in axes for one in axis], after)
        if grouped is None:
            return None
        axes = grouped
    return Movement(before, after, [_merged(axis) for axis in axes])


def _grouped(factors: list[Factor], shape: Sequence[int]) -> list[list[Factor]] | None:
    """Factors by the axes of a new shape; a factor that reaches over the end of one is split."""
    left, axes = factors[::-1], []
    for extent in shape:
        axis: list[Factor] = []
        while (lacking := extent // prod(one for one, _ in axis)) > 1:
            if not left:
                return None
            whole, stride = left.pop()
            if lacking % whole == 0:
                axis.append((whole, stride))
            elif whole % lacking == 0:
                axis.append((lacking, stride * (whole // lacking)))
                left.append((whole // lacking, stride))
            else:
                return None
        axes.append(axis)
    return None if left else axes


def _merged(factors: list[Factor]) -> list[Factor]:
    merged = factors[:1]
    for inner in factors[1:]:
        outer = merged[-1]
        if outer[1] == inner[0] * inner[1]:
            merged[-1] = (outer[0] * inner[0], inner[1])
        else:
            merged.append(inner)
    return merged
