"""Folds constants with NumPy: TVM's ``FoldConstant`` compiles a function for each of them.

The weights of a network in channels last are transposed one by one. With compiled functions this
takes 13 s of ResNet-50's preparation, with NumPy 0.2 s. A batch norm that TVM folds into a
convolution leaves sums and roots of constants and bare numbers. ``ConvertLayout`` crashes at these
(TVM 0.27). At constants with fewer dimensions than the other operand, it inserts transposes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.functions import UNKNOWN, extents, mutate, named, relax_functions
from toolkit.networks.graph.movements import axes_of


def _reshaped(array: Any, call: Any) -> Any:
    return array.reshape(extents(call))


_MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "relax.permute_dims": lambda array, call: array.transpose(axes_of(call)),
    "relax.reshape": _reshaped,
    "relax.expand_dims": _reshaped,
    "relax.squeeze": _reshaped,
    # TVM's own folding fails for infinities.
    "relax.full": lambda value, call: np.full(extents(call), value),
}

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "relax.add": lambda a, b, _: a + b,
    "relax.subtract": lambda a, b, _: a - b,
    "relax.multiply": lambda a, b, _: a * b,
    "relax.divide": lambda a, b, _: a / b,
    "relax.negative": lambda a, _: -a,
    "relax.sqrt": lambda a, _: np.sqrt(a),
    "relax.rsqrt": lambda a, _: 1 / np.sqrt(a),
}
"""Operators that are folded: a function of the arguments' arrays and the call."""

FLOATS = ("float32", "float64")
"""Dtypes in which NumPy and TVM compute the same; other constants are only moved."""


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Replace transposes, reshapes and arithmetic on constants by their results."""
    return relax.transform.CanonicalizeBindings()(mutate(module, lambda at, _: _Folder(at)))


def fold_rest(module: tvm.IRModule) -> tvm.IRModule:
    """Fold the rest with TVM's pass, if a call has only constants as arguments.

    The pass first lowers every operator of the network (2 s for 200 convolutions).
    """
    if not any(map(_has_constant_call, relax_functions(module))):
        return module
    return relax.transform.FoldConstant()(module)


def _has_constant_call(function: relax.Function) -> bool:
    values = relax.analysis.get_var2val(function)

    def varies(part: Any) -> bool:
        if isinstance(part, relax.Tuple):
            return any(map(varies, part.fields))
        if not isinstance(part, relax.Var):
            return isinstance(part, (relax.Call, relax.TupleGetItem, relax.If))
        return not isinstance(values.get(part), (tvm.ir.expr.GenericConst, relax.ShapeExpr))

    calls = (value for value in values.values() if isinstance(value, relax.Call))
    return any(not any(map(varies, call.args)) for call in calls)


@mutator
class _Folder(PyExprMutator):  # type: ignore[misc]
    """Visits bindings in order, so that a chain of calls is folded from its start."""

    def visit_call_(self, call: Any) -> Any:
        """Evaluate a call whose arrays are all constants."""
        visited = self.visit_expr_post_order(call)
        name = named(visited)
        fold: Callable[..., Any] | None = _MOVES.get(name) or _ARITHMETIC.get(name)
        if fold is None:
            return visited
        # The second argument of a reshape is a shape.
        arrays = [self._array(one) for one in visited.args if not isinstance(one, relax.ShapeExpr)]
        if any(array is None for array in arrays):
            return _of_equal_rank(visited) if name in _ARITHMETIC else visited
        if name in _ARITHMETIC and str(call.ty.dtype) not in FLOATS:
            return visited
        try:
            result = fold(*arrays, call)
        except UNKNOWN:  # left to TVM
            return visited
        return relax.const(np.ascontiguousarray(result), str(call.ty.dtype))

    def _array(self, source: Any) -> Any:
        """Return the array of a constant or number; ``None`` for other arguments."""
        if isinstance(source, relax.Var):
            source = self.lookup_binding(source)
        if isinstance(source, tvm.tirx.FloatImm):
            return np.asarray(source.value, dtype=str(source.ty.dtype))
        return source.value.numpy() if isinstance(source, tvm.ir.expr.GenericConst) else None


def _of_equal_rank(call: Any) -> Any:
    """Return the call with numbers as constants, and constants of the result's rank."""
    args = []
    for arg in call.args:
        if isinstance(arg, tvm.tirx.FloatImm):
            arg = relax.const(float(arg.value), str(arg.ty.dtype))
        elif isinstance(arg, tvm.ir.expr.GenericConst) and 0 < arg.ty.ndim < call.ty.ndim:
            array = arg.value.numpy()
            shape = [1] * (call.ty.ndim - array.ndim) + [*array.shape]
            arg = relax.const(array.reshape(shape), str(arg.ty.dtype))
        args.append(arg)
    return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)
