"""Packs constant weights with NumPy: TVM's ``FoldConstant`` compiles a function for each of them.

A schedule that changes the layout of weights leaves a function that packs them. The function copies
every element once: each dimension is split into digits, and the digits are permuted.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir.expr import GenericConst, TensorLoad
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import SBlockRealize

from toolkit.networks.graph.functions import mutate, named

Array = NDArray[Any]


def pack_weights(module: tvm.IRModule) -> tvm.IRModule:
    """Replace calls that only change the layout of constants by their results."""
    return relax.transform.CanonicalizeBindings()(mutate(module, lambda at, _: _Packer(at)))


@mutator
class _Packer(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        """Evaluate a call of a packing function whose arguments are constants."""
        if named(call) != "relax.call_tir" or not isinstance(call.args[1], relax.Tuple):
            return call
        function, given = self.builder_.get()[call.args[0]], list(call.args[1].fields)
        if not all(isinstance(one, GenericConst) for one in given):
            return call
        arrays = moved(function, [one.value.numpy() for one in given])
        if arrays is None:
            return call
        constants = [relax.const(array, str(array.dtype)) for array in arrays]
        many = isinstance(call.ty_args[0], relax.TupleType)
        return relax.Tuple(constants) if many else constants[0]


def moved(function: tirx.PrimFunc, arrays: list[Array]) -> list[Array] | None:
    """Return a function's outputs if it only moves elements of its inputs; otherwise ``None``.

    Each of its loop nests copies one whole input into one output.
    """
    root = function.body
    if not isinstance(root, SBlockRealize) or root.block.alloc_buffers:
        return None
    body, parameters = root.block.body, list(function.params)
    made: dict[int, Array] = {}
    for nest in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        copy = _copy_of(nest)
        if copy is None:
            return None
        source, target, variables, indices = copy
        read, written = _place(source, parameters), _place(target, parameters)
        if read is None or written is None or read >= len(arrays):
            return None
        shape = [int(extent) for extent in target.shape]
        array = _laid_out(arrays[read], variables, indices, shape)
        if array is None:
            return None
        made[written] = array
    outputs = range(len(arrays), len(parameters))
    return [made[place] for place in outputs] if set(made) == set(outputs) else None


def _place(sought: Any, among: list[Any]) -> int | None:
    return next((place for place, one in enumerate(among) if one.same_as(sought)), None)


def _copy_of(nest: Any) -> tuple[Any, Any, list[Any], list[Any]] | None:
    """Return source, target, variables of the source's dimensions, and indices into the target."""
    loops = []
    while isinstance(nest, tirx.For):
        loops.append(nest)
        nest = nest.body
    if not isinstance(nest, SBlockRealize) or getattr(nest.predicate, "value", 0) != 1:
        return None
    block, bound = nest.block, list(nest.iter_values)
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, TensorLoad):
        return None
    source, variables = store.value.source, [each.var for each in block.iter_vars]
    if not len(loops) == len(variables) == len(source.shape) == len(bound):
        return None
    # Every loop is one whole dimension of the source.
    dimensions = zip(loops, bound, variables, source.shape, store.value.indices, strict=True)
    whole = all(
        value.same_as(loop.loop_var) and index.same_as(variable)
        and int(loop.min) == 0 and int(loop.extent) == int(extent)
        for loop, value, variable, extent, index in dimensions
    )  # fmt: skip
    return (source, store.buffer, variables, list(store.indices)) if whole else None


def _laid_out(
    array: Array, variables: list[Any], indices: list[Any], shape: list[int]
) -> Array | None:
    """Return an array of another ``shape`` with element ``v`` of ``array`` at ``indices(v)``."""
    if math.prod(shape) != array.size:
        return None
    strides = _strides(shape)
    digits: list[tuple[int, int]] = []
    for dimension, extent in zip(variables, array.shape, strict=True):
        # Offsets of this dimension's elements, with all other indices at 0.
        try:
            values = [_value(each, dimension, np.arange(extent)) for each in indices]
        except TypeError:
            return None
        offsets = sum(stride * value for stride, value in zip(strides, values, strict=True))
        found = _digits_of(np.broadcast_to(offsets, (extent,)))
        if found is None:
            return None
        digits += found
    order = sorted(range(len(digits)), key=lambda place: -digits[place][1])
    places = [digits[place] for place in order]
    if [stride for _, stride in places] != _strides([extent for extent, _ in places]):
        return None
    cut = array.reshape([extent for extent, _ in digits])
    return np.ascontiguousarray(cut.transpose(order)).reshape(shape)


def _strides(shape: list[int]) -> list[int]:
    return [math.prod(shape[place + 1 :]) for place in range(len(shape))]


def _digits_of(offsets: Array) -> list[tuple[int, int]] | None:
    """Return extents and strides of the digits that give these offsets, outermost first."""
    digits: list[tuple[int, int]] = []
    rest = offsets
    if rest[0] != 0:
        return None
    while len(rest) > 1:
        stride = int(rest[1])
        breaks = np.flatnonzero(np.diff(rest) != stride)
        extent = int(breaks[0]) + 1 if len(breaks) else len(rest)
        if len(rest) % extent:
            return None
        steps = rest.reshape(-1, extent)
        if (steps != steps[:, :1] + stride * np.arange(extent)).any():
            return None
        digits.insert(0, (extent, stride))
        rest = steps[:, 0]
    return digits


def _value(index: Any, variable: Any, values: Array) -> Any:
    """Return the value of an index if one variable has these values and all others are 0.

    Raises ``TypeError`` for an index that is not integer arithmetic, or not a sum over variables.
    """
    if isinstance(index, tirx.Var):
        return values if index.same_as(variable) else 0
    if isinstance(index, tirx.IntImm):
        return index.value
    arithmetic = _ARITHMETIC.get(type(index))
    # In a sum, or a multiple of one, each dimension's part can be computed alone.
    linear = isinstance(index, (tirx.Add, tirx.Sub)) or (
        isinstance(index, tirx.Mul) and isinstance(index.b, tirx.IntImm)
    )
    if arithmetic is None or (not linear and len(tirx.analysis.undefined_vars(index)) > 1):
        raise TypeError(type(index))
    return arithmetic(_value(index.a, variable, values), _value(index.b, variable, values))


_ARITHMETIC: dict[type, Any] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
}
