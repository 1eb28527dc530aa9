"""Concatenations as sums of convolutions, or as copies with a loop nest per part; and splits.

TVM's own concatenation checks at every element which input it comes from: no schedule vectorises
this well. For a shuffle (reshape, transpose, reshape), TVM divides at every element. The copies do
neither. They include slices before and after: a copy reads and writes only what is needed. A
concatenation whose users are elementwise operators stays: it fuses with them, and copies would cost
another pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

from toolkit.networks.graph.functions import UNKNOWN, behind, extents, mutate, named, tidied, uses
from toolkit.networks.graph.movements import (
    CONCATENATE,
    SLICE,
    Box,
    Copy,
    Index,
    box_of,
    copies_of,
    movement_of,
    whole,
    window_of,
)
from toolkit.networks.graph.reshapes import MOVES

FUSED = ("add", "subtract", "multiply", "divide", "clip", "relu", "relu6", "gelu", "silu", "tanh",
         "sigmoid", "exp", "erf", "sqrt", "rsqrt", "negative", "abs", "maximum", "minimum", "power",
         "leakyrelu", "prelu", "batch_norm", "astype", "round", "where")  # fmt: skip
"""Operators, by the last part of their name, with which a concatenation fuses."""


def splits_as_slices(module: tvm.IRModule) -> tvm.IRModule:
    """Write the parts of a split as slices: transposes can move past them, and their users fuse."""
    return tidied(mutate(module, lambda at, _: _Slices(at)))


@mutator
class _Slices(PyExprMutator):  # type: ignore[misc]
    def visit_tuple_getitem_(self, item: Any) -> Any:
        """Replace a part of a split by a slice of the tensor."""
        visited = self.visit_expr_post_order(item)
        split = behind(visited.tuple_value, self.lookup_binding)
        if named(split) != "relax.split":
            return visited
        axis = int(split.attrs.axis) % split.args[0].ty.ndim
        try:
            sizes = [int(one.shape.values[axis]) for one in split.ty.fields]
        except UNKNOWN:
            return visited
        begin, size = sum(sizes[: visited.index]), sizes[visited.index]
        return relax.op.strided_slice(split.args[0], [axis], [begin], [begin + size])


def convolve_before_concatenation(module: tvm.IRModule) -> tvm.IRModule:
    """Write a convolution of a concatenation as the sum of convolutions of its parts.

    Channels come first. This is done only if the concatenation has no other use and the convolution
    has at most half as many output channels as input channels: then the sums cost less than the
    copy. SqueezeNet spends a sixth of its time in such copies.
    """
    made = mutate(module, lambda at, one: _Sums(at, _convolved_once(one)))
    t = relax.transform
    # Sums have two names now, and ``ConvertLayout`` fails at a second name.
    passes = [t.Normalize(), t.CanonicalizeBindings(), t.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(made)


def _convolved_once(function: relax.Function) -> dict[Any, list[Any]]:
    """Find concatenations along channels with one use, a convolution; return parts by its call."""
    values, users, results = uses(function)
    found = {}
    for variable, call in values.items():
        of = users.get(variable, [])
        if named(call) != CONCATENATE or variable in results or len(of) != 1:
            continue
        parts = values.get(call.args[0], call.args[0])
        if call.attrs.axis == 1 and isinstance(parts, relax.Tuple) and _of_parts(values[of[0]]):
            found[values[of[0]]] = list(parts.fields)
    return found


def _of_parts(call: Any) -> bool:
    """Return whether it is a convolution in one group that at least halves the channels."""
    if named(call) != "relax.nn.conv2d" or int(call.attrs.groups) != 1:
        return False
    layouts = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    if layouts != ("NCHW", "OIHW") or not isinstance(call.args[1], tvm.ir.expr.GenericConst):
        return False
    filters, channels = extents(call.args[1])[:2]
    return 2 * filters <= channels


@mutator
class _Sums(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, parts: dict[Any, list[Any]]) -> None:
        super().__init__(module)
        self._parts = parts

    def visit_call_(self, call: Any) -> Any:
        """Replace a convolution by the sum over the parts, in order."""
        visited = self.visit_expr_post_order(call)
        parts = self._parts.get(call)
        if parts is None:
            return visited
        cuts = np.cumsum([extents(part)[1] for part in parts])[:-1]
        weights = np.split(call.args[1].value.numpy(), cuts, axis=1)
        window = {name: call.attrs[name] for name in ("strides", "padding", "dilation")}
        total, emit = None, self.builder_.emit
        for part, weight in zip(parts, weights, strict=True):
            constant = relax.const(np.ascontiguousarray(weight), str(weight.dtype))
            one = emit(relax.op.nn.conv2d(self.visit_expr(part), constant, **window))
            total = one if total is None else emit(relax.op.add(one, total))
        return total


def concatenate_by_copies(module: tvm.IRModule) -> tvm.IRModule:
    """Replace concatenations and shuffles by copies, unless their users are elementwise."""
    return relax.transform.DeadCodeElimination()(mutate(module, _Copies))


@mutator
class _Copies(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(module)
        self._values, self._users, self._results = uses(function)
        self._value = self._values.get
        self._variables = {value: variable for variable, value in self._values.items()}
        fused = [one for one in self._values.values() if named(one).rpartition(".")[2] in FUSED]
        self._kept = {arg for one in fused for arg in one.args if isinstance(arg, relax.Var)}
        self._found: dict[Any, list[Copy]] = {}

    def visit_call_(self, call: Any) -> Any:
        """Replace a concatenation or a shuffle of known shapes by copies."""
        var = self._variables.get(call)
        if var is None or var in self._kept or self._waits(var) or not (made := self._copies(var)):
            return self.visit_expr_post_order(call)
        shape, dtype = extents(call), str(call.ty.dtype)
        name = "shuffle" if self._moves(call) else "concatenate"
        given = [self.visit_expr(one.source) for one in made]
        called = self.builder_.add_func(copying_function(made, shape, dtype), name)
        return relax.call_tir(called, given, relax.TensorType(shape, dtype))

    def _copies(self, var: Any) -> list[Copy]:
        """Return the copies that compute a result; empty if copies cannot."""
        if var not in self._found:
            self._found[var] = []
            with suppress(*UNKNOWN):
                self._found[var] = self._copies_for(var, self._value(var)) or []
        return self._found[var]

    def _copies_for(self, var: Any, call: Any) -> list[Copy] | None:
        moves = self._moves(call)
        if moves:
            source = moves[-1].args[0]
            if named(call) != SLICE and named(self._value(source)) != CONCATENATE:
                return None  # it may fuse with the function that computes its source
            kept = window_of(call) if named(call) == SLICE else whole(extents(call))
        else:
            source, kept = var, whole(extents(call))
            joined = self._value(call.args[0]) if named(call) == SLICE else call
            if named(joined) != CONCATENATE:
                return None
        movement = movement_of(extents(source), moves[::-1])
        # A shuffle is a transpose between two reshapes: TVM divides at each element.
        if kept is None or movement is None or (moves and len(movement.steps()) != 3):
            return None
        copies = copies_of(self._boxes(source), movement, kept)
        if copies is None:  # a part ends within a factor of the movement
            copies = copies_of([box_of(source)], movement, kept)
        return copies

    def _moves(self, call: Any) -> list[Any]:
        """Return the transposes and reshapes that end in a call or before a slice, last first."""
        at = self._value(call.args[0]) if named(call) == SLICE else call
        moves: list[Any] = []
        while named(at) in MOVES:
            moves.append(at)
            at = self._value(at.args[0])
        return moves

    def _waits(self, var: Any) -> bool:
        """Return whether only copies use a result: they read its sources instead."""
        if var in self._results or named(self._value(var)) not in {CONCATENATE, *MOVES}:
            return False
        users = self._users.get(var, [])
        joins = named(self._value(var)) == CONCATENATE and all(map(self._joins, users))
        return joins or all(map(self._cuts, users))

    def _cuts(self, user: Any) -> bool:
        value = self._value(user)
        return user not in self._kept and named(value) == SLICE and window_of(value) is not None

    def _joins(self, user: Any) -> bool:
        if isinstance(self._value(user), relax.Tuple):
            return all(map(self._joins, self._users.get(user, [])))
        return user not in self._kept and named(self._value(user)) == CONCATENATE

    def _boxes(self, tensor: Any, inner: bool = False) -> list[Box]:
        """Return the boxes of a tensor: parts of concatenations, and of sliced tensors."""
        value = self._value(tensor)
        if named(value) == CONCATENATE and (self._waits(tensor) or not inner):
            axis, offset, boxes = int(value.attrs.axis) % value.ty.ndim, 0, []
            parts = value.args[0]
            parts = parts if isinstance(parts, relax.Tuple) else self._value(parts)
            for field in parts.fields:
                boxes += [one.moved(axis, offset) for one in self._boxes(field, inner=True)]
                offset += extents(field)[axis]
            return boxes
        if named(value) == SLICE and not (self._moves(value) and self._copies(tensor)):
            window = window_of(value)
            if window is not None:
                cut = [one.cut(window) for one in self._boxes(value.args[0], inner=True)]
                return [one for one in cut if one is not None]
        return [box_of(tensor)]


def copying_function(copies: Sequence[Copy], shape: Sequence[int], dtype: str) -> Any:
    """Return a function of the copies' sources that copies them into one output of this shape."""
    with IRBuilder() as builder, build.prim_func(is_private=True, s_tir=True):
        # Opaque: TVM would fuse parts of one element with their neighbours, and fails at that.
        build.func_attr({"tirx.noalias": True, "op_pattern": 8})
        parts = [
            build.arg(f"part{place}", build.buffer(extents(copy.source), dtype))
            for place, copy in enumerate(copies)
        ]
        out = build.arg("out", build.buffer(list(shape), dtype))
        for place, (part, copy) in enumerate(zip(parts, copies, strict=True)):
            _loops(part, out, copy, f"copy{place}")
    return builder.get()


def _loops(part: Any, out: Any, copy: Copy, name: str) -> None:
    with build.grid(1, *copy.loops) as loops, build.sblock(name):
        at = build.axis.remap("S" * len(loops), list(loops))[1:]
        here, there = ([_at(one, at) for one in each] for each in (copy.read, copy.write))
        build.reads(part[tuple(here)])
        build.writes(out[tuple(there)])
        build.buffer_store(out, part[tuple(here)], there)


def _at(index: Index, loops: Sequence[Any]) -> Any:
    offset, steps = index
    terms = [loops[loop] * step if step > 1 else loops[loop] for loop, step in steps]
    terms += [offset] if offset or not terms else []
    return sum(terms[1:], terms[0])
