"""Concatenations: as sums of convolutions, or as copies, one loop nest an input.

TVM's own concatenation asks at every element which input it comes from, which no schedule
vectorises well; of a shuffle (reshape, transpose, reshape) it divides at every element. The copies
do neither. Slices before and after are part of them: a copy reads and writes what is wanted alone.
What goes straight into an elementwise operator stays: there it fuses, and copies would cost a pass
over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

from toolkit.networks.graph.chains import (
    extents,
    mutate_functions,
    named,
    results_of,
    users_of,
)
from toolkit.networks.graph.movements import TRANSPOSE, Movement, movement_of
from toolkit.networks.graph.reshapes import RESHAPES

CONCATENATE, SLICE = "relax.concat", "relax.strided_slice"
MOVES = {TRANSPOSE, *RESHAPES}

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
    """Replace concatenations and shuffles whose users are no elementwise operators by copies."""
    made = mutate_functions(module, _Copies)
    return relax.transform.DeadCodeElimination()(made)


def _into_elementwise(values: Any) -> set[Any]:
    """Variables that an elementwise operator uses; ``values`` as ``get_var2val`` gives them."""
    users = [one for one in values.values() if named(one).rpartition(".")[2] in FUSED]
    return {arg for one in users for arg in one.args if isinstance(arg, relax.Var)}


Index = tuple[int, list[tuple[int, int]]]
"""Where along an axis: an offset, and the loops that count, each with its step."""


@dataclass(frozen=True)
class Copy:
    """A loop nest that copies one input: extents of the loops, where it reads and where it writes.

    Each axis of the input, and of the output, has an index.
    """

    source: Any
    loops: list[int]
    read: list[Index]
    write: list[Index]


@mutator
class _Copies(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(module)
        self._values = relax.analysis.get_var2val(function)
        self._variables = {value: variable for variable, value in self._values.items()}
        self._users = users_of(self._values)
        self._results = results_of(function)
        self._kept = _into_elementwise(self._values)

    def visit_call_(self, call: Any) -> Any:
        """Put copies in the place of a concatenation or a shuffle of known shapes."""
        var, made = self._variables.get(call), None
        if var is not None and var not in self._kept:
            with suppress(AttributeError, TypeError, ValueError):  # a shape that is not known
                made = self._copied(var, call)
        return self.visit_expr_post_order(call) if made is None else made

    def _copied(self, var: Any, call: Any) -> Any:
        chain = call
        _, window = _all_of(call)
        if named(call) == SLICE:
            cut = _window(call)
            if cut is None:
                return None
            chain, window = self._value(call.args[0]), cut
        elif var not in self._results and all(map(self._is_slice, self._users.get(var, []))):
            return None  # the slices are copies
        source, moves = chain, []
        while named(source) in MOVES:
            moves.append(source)
            source = self._value(source.args[0], source.args[0])
        movement = movement_of(extents(moves[-1].args[0] if moves else source), moves[::-1])
        if movement is None or (moves and not _shuffles(movement)):
            return None
        if named(source) != CONCATENATE and not (moves and named(call) == SLICE):
            return None  # it may fuse with what computes its source
        parts, axis = self._parts(source, moves)
        copies = copies_of(parts, axis, movement, window)
        if copies is None and moves:  # a part ends within what moves as one
            copies = copies_of([_all_of(moves[-1].args[0])], 0, movement, window)
        if not copies:
            return None
        name = "shuffle" if moves else "concatenate"
        shape = [end - begin for begin, end in window]
        shapes = [extents(one.source) for one in copies]
        dtype = str(call.ty.dtype)
        function = self.builder_.add_func(copying(copies, shapes, shape, dtype), name)
        given = [self.visit_expr(one.source) for one in copies]
        return relax.call_tir(function, given, relax.TensorType(shape, dtype))

    def _value(self, expression: Any, otherwise: Any = None) -> Any:
        return self._values.get(expression, otherwise)

    def _is_slice(self, user: Any) -> bool:
        value = self._values[user]
        return user not in self._kept and named(value) == SLICE and _window(value) is not None

    def _is_moved(self, source: Any) -> bool:
        """Whether a slice of it may be a copy by itself."""
        return named(self._value(source)) in {CONCATENATE, *MOVES}

    def _parts(self, source: Any, moves: list[Any]) -> tuple[list[Any], int]:
        """What is concatenated, each with the window of it that is read, and along which axis."""
        if named(source) != CONCATENATE:
            return [_all_of(moves[-1].args[0])], 0
        fields = self._value(source.args[0], source.args[0]).fields
        parts = []
        for field in fields:
            value, window = self._value(field), None
            if named(value) == SLICE and not self._is_moved(value.args[0]):
                window = _window(value)
            if window is None:
                parts.append(_all_of(field))
            else:
                parts.append((value.args[0], window))
        return parts, int(source.attrs.axis or 0) % source.ty.ndim


def _all_of(tensor: Any) -> tuple[Any, list[tuple[int, int]]]:
    return tensor, [(0, extent) for extent in extents(tensor)]


def _shuffles(movement: Movement) -> bool:
    """Whether it takes a transpose between two reshapes: TVM divides at every element of it."""
    return len(movement.steps()) == 3


def _window(call: Any) -> list[tuple[int, int]] | None:
    """Begin and end of a slice along each axis; ``None`` for one with steps."""
    shape = extents(call.args[0])
    axes, begins, ends, *steps = ([int(one.value) for one in each.fields] for each in call.args[1:])
    if any(step != 1 for each in steps for step in each):
        return None
    window = [(0, extent) for extent in shape]
    for axis, *bounds in zip(axes, begins, ends, strict=True):
        extent = shape[axis]
        low, high = (min(max(one + extent * (one < 0), 0), extent) for one in bounds)
        window[axis] = low, high
    return window


def copies_of(
    parts: Sequence[tuple[Any, Sequence[tuple[int, int]]]],
    axis: int,
    movement: Movement,
    window: Sequence[tuple[int, int]],
) -> list[Copy] | None:
    """Copies that do what a concatenation, a movement and a slice do one after another.

    ``None`` where a part or the slice ends within what moves as one.

    Parameters
    ----------
    parts
        Inputs, and begin and end of what is concatenated of each, by axis.
    axis
        Along which they are concatenated.
    movement
        Of what they are concatenated to.
    window
        Begin and end of what is kept, by axis.
    """
    copies, offset = [], 0
    for source, read in parts:
        size = read[axis][1] - read[axis][0]
        made = _copy_of(source, read, (axis, offset, offset + size), movement, window)
        if made is None:
            return None
        copies += made
        offset += size
    return copies


def _copy_of(
    source: Any,
    read: Sequence[tuple[int, int]],
    along: tuple[int, int, int],
    movement: Movement,
    window: Sequence[tuple[int, int]],
) -> list[Copy] | None:
    """The copy of a part; none where it lies outside of the window."""
    axis, begin, end = along
    reads: list[tuple[int, list[tuple[int, int]]]] = [(low, []) for low, _ in read]
    writes: list[tuple[int, list[tuple[int, int]]]] = []
    loops: list[int] = []
    for (low, high), pieces in zip(window, movement.pieces(), strict=True):
        step, index = prod(extent for _, extent, _ in pieces), []
        offset = -low
        for place, (of, extent, stride) in enumerate(pieces):
            step //= extent
            bounds = [(0, extent)]
            if place == 0:
                if low % step or high % step:
                    return None
                bounds.append((low // step, high // step))
            if of == axis and extent * stride == movement.before[axis]:
                if begin % stride or end % stride:
                    return None
                bounds.append((begin // stride, end // stride))
                reads[axis] = reads[axis][0] - begin, reads[axis][1]
            first, last = max(one for one, _ in bounds), min(one for _, one in bounds)
            if first >= last:
                return []
            reads[of] = reads[of][0] + first * stride, reads[of][1]
            offset += first * step
            if last - first > 1:
                reads[of][1].append((len(loops), stride))
                index.append((len(loops), step))
                loops.append(last - first)
        writes.append((offset, index))
    return [Copy(source, loops, reads, writes)]


def copying(
    copies: Sequence[Copy], shapes: Sequence[Sequence[int]], whole: Sequence[int], dtype: str
) -> Any:
    """A function of inputs of these shapes that copies them into an output of shape ``whole``."""
    with IRBuilder() as builder, build.prim_func(is_private=True, s_tir=True):
        build.func_attr({"tirx.noalias": True})
        parts = [
            build.arg(f"part{place}", build.buffer(list(shape), dtype))
            for place, shape in enumerate(shapes)
        ]
        out = build.arg("out", build.buffer(list(whole), dtype))
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
