"""Pads the rows of products whose number of rows no tile divides.

A vision transformer has 197 rows, a prime: 14 x 14 patches and one more. TVM's tiles divide their
loops, so a product of 197 rows is computed row by row. With 200 rows, the last three unused, tiles
of 4 and 8 fit. Rows mix only in attention. There the columns of the unused rows get a weight of
zero: the outputs do not change, and neither does their rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.functions import (
    behind,
    call_again,
    known_shape,
    mutate,
    named,
    returned_by,
    tidied,
)
from toolkit.networks.graph.movements import TRANSPOSE, axes_of
from toolkit.networks.graph.reshapes import LAST, ONE, RESHAPES, TWO, axes_along

TILES = (4, 5, 6, 7, 8, 9, 10, 12, 14, 16)
"""Numbers of rows that a tile may have in registers."""
MULTIPLE = 8
"""Rows are padded up to a multiple of this."""
MOST_MORE = 1 / 8
"""Largest number of added rows, as a share of the original ones."""
LEAST_PRODUCTS = 3
"""Least number of products with weights that must have this number of rows."""

REDUCTIONS = {f"relax.{name}" for name in ("mean", "sum", "max", "min", "variance")}

SIGNS = {
    **dict.fromkeys(("relax.exp", "relax.sigmoid"), 2),
    **dict.fromkeys(("relax.abs", "relax.nn.relu", "relax.nn.softmax", "relax.variance"), 1),
}
"""``least_sign`` of operators whose result has this sign for every input."""

CUTS = {"relax.split", "relax.strided_slice"}

UNUSED = -np.inf
"""Added to a score before its softmax: below any value that a mask gives to the others."""


def pad_rows(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite the Relax functions whose rows are to be padded from their source on."""
    return tidied(mutate(module, lambda at, one: _Padder(at, one, _rows_to_pad(one))))


def _rows_to_pad(function: relax.Function) -> int:
    """Return the most frequent number of rows of products with weights that no tile divides; or 0.

    The rows must come from an input or from a concatenation, where padding costs nothing.
    """
    products: Counter[int] = Counter()
    begun = {extent for one in function.params for extent in known_extents(one)}

    def visit(node: Any) -> None:
        name = named(node)
        if name == "relax.matmul" and len(known_extents(node.args[1])) == 2:
            products[known_extents(node.args[0])[-2:][0]] += 1
        elif name == "relax.concat":
            begun.update(known_extents(node)[-2:-1])

    relax.analysis.post_order_visit(function, visit)
    odd = {
        rows: count
        for rows, count in products.items()
        if count >= LEAST_PRODUCTS and rows in begun and all(rows % tile for tile in TILES)
        if _padded(rows) - rows <= MOST_MORE * rows
    }
    return max(odd, key=lambda rows: odd[rows], default=0)


def _padded(rows: int) -> int:
    return -(-rows // MULTIPLE) * MULTIPLE


def known_extents(expression: Any) -> list[int]:
    """Return the extents of a tensor; ``[0]`` if they are not known or it is not a tensor."""
    return known_shape(expression) or [0]


@mutator
class _Padder(PyExprMutator):  # type: ignore[misc]
    """Visits bindings in order. A tensor is padded if its extents differ from those of the old one.

    Calls that may mix rows get tensors with the original rows only.
    """

    def __init__(self, module: tvm.IRModule, function: relax.Function, rows: int) -> None:
        super().__init__(module)
        self._rows, self._padded = rows, _padded(rows)
        self._values = relax.analysis.get_var2val(function)
        returned = returned_by(function, self._values)
        self._returned = [self._values.get(one, one) for one in returned]

    def visit_call_(self, call: Any) -> Any:
        """Compute with padded rows where possible."""
        if not self._rows:
            return self.visit_expr_post_order(call)
        # The call itself is not visited: its shapes may not fit each other before they are padded.
        args = [self.visit_expr(one) for one in call.args]
        done = self._with_padding(call, args)
        if done is None:
            done = call_again(call, self._plain(call.args, args))
        elif any(map(call.same_as, self._returned)):
            (done,) = self._plain([call], [self.builder_.emit(done)])
        return done

    def _with_padding(self, call: Any, args: list[Any]) -> Any:
        """Return the call on padded tensors; ``None`` if it needs unpadded ones."""
        name, shape = named(call), known_extents(call)
        if name == "relax.concat":
            return self._concatenated(call, args, shape)
        if name == "relax.matmul":
            return self._product(call, args)
        if not any(map(is_padded, call.args, args)):
            return call_again(call, args)
        if name in RESHAPES:
            return self._reshaped(call, args, shape)
        if name in ONE or name == "relax.permute_dims":
            return call_again(call, args)
        if name in TWO or name == "relax.where":
            return self._elementwise(call, args, name)
        if name == "relax.nn.softmax" and shape[axes_along(call)[0]] == self._rows:
            return self._softmax(call, args, axes_along(call)[0])
        if name in LAST | REDUCTIONS | CUTS:
            # A call along other axes treats every row the same.
            along = [known_extents(call.args[0])[axis] for axis in axes_along(call)]
            return call_again(call, args) if along and self._rows not in along else None
        return None

    def _concatenated(self, call: Any, args: list[Any], shape: list[int]) -> Any:
        old = _fields(call.args[0], self._values.get)
        new = _fields(args[0], self.lookup_binding)
        if old is None or new is None or call.attrs.axis is None or shape == [0]:
            return None
        axis = int(call.attrs.axis) % len(shape)
        if shape[axis] != self._rows:
            if any(known_extents(one)[axis] == self._rows for one in old):
                new = self._plain(old, new)  # the added rows would lie between them
            elif any(map(is_padded, old, new)):
                new = list(map(self._grown, old, new))
            return relax.op.concat(new, axis)
        new = self._plain(old, new)
        rest = [*shape[:axis], self._padded - self._rows, *shape[axis + 1 :]]
        of_rows = axis == len(shape) - 2 and self._rows not in rest
        if of_rows and str(call.ty.dtype) == "float32":
            new.append(relax.const(np.zeros(rest, "float32")))
        return relax.op.concat(new, axis)

    def _product(self, call: Any, args: list[Any]) -> Any:
        left, right = (known_extents(one) for one in call.args)
        if str(call.ty.dtype) != "float32" or [0] in (left, right):
            return None
        summed = zip(call.args, (len(left) - 1, max(len(right) - 2, 0)), strict=True)
        if left[-1] == self._rows and not any(self._is_zero_beyond(*each) for each in summed):
            return None
        return relax.op.matmul(*map(self._grown, call.args, args))

    def _is_zero_beyond(self, old: Any, axis: int) -> bool:
        """Return whether a tensor is zero after an axis's rows: constants, attention weights."""
        value = behind(old, self._values.get)
        if isinstance(value, tvm.ir.expr.GenericConst):
            return True
        name = named(value)
        if name == TRANSPOSE:
            return self._is_zero_beyond(value.args[0], axes_of(value)[axis])
        if name in RESHAPES:
            before, after = (known_extents(one) for one in (value.args[0], value))
            if self._places(before) != self._places(after):
                return False  # its added elements would need a copy to become zeros
            at = after[:axis].count(self._rows)
            rows = [place for place, extent in enumerate(before) if extent == self._rows]
            return self._is_zero_beyond(value.args[0], rows[at])
        return name == "relax.nn.softmax" and axis in axes_along(value)

    def _reshaped(self, call: Any, args: list[Any], shape: list[int]) -> Any:
        if self._places(known_extents(call.args[0])) != self._places(shape):
            return None
        padded = [self._padded if extent == self._rows else extent for extent in shape]
        return relax.op.reshape(args[0], padded)

    def _places(self, shape: list[int]) -> list[int]:
        """Return the product of the extents after each axis of rows."""
        return [
            int(np.prod(shape[at + 1 :], dtype=np.int64))
            for at, extent in enumerate(shape)
            if extent == self._rows
        ]

    def _elementwise(self, call: Any, args: list[Any], name: str) -> Any:
        for at, (old, new) in enumerate(zip(call.args, args, strict=True)):
            if self._rows not in known_extents(old) or is_padded(old, new):
                continue
            if name == "relax.divide" and at == 1:
                return None  # it would divide by zeros
            if isinstance(old, relax.Var) and str(old.ty.dtype) != "float32":
                return None
        given = list(map(self._grown, call.args, args))
        if name == "relax.divide" and is_padded(call.args[1], args[1]):
            given[1] = self._without_zeros(call.args[1], given[1])
        return relax.Call(call.op, given, call.attrs)

    def _without_zeros(self, old: Any, new: Any) -> Any:
        """Return a divisor with 1 in unused rows that may be 0: 0 times NaN is NaN."""
        if least_sign(new, self.lookup_binding) == 2:
            return new
        shape = known_extents(old)
        counts = np.ones([one if one == self._rows else 1 for one in shape], "bool")
        more = [(0, self._padded - self._rows if one == self._rows else 0) for one in shape]
        one = relax.const(1, str(new.ty.dtype))
        return self.builder_.emit(relax.op.where(relax.const(np.pad(counts, more)), new, one))

    def _softmax(self, call: Any, args: list[Any], axis: int) -> Any:
        shape = [1] * call.ty.ndim
        shape[axis] = self._padded
        unused = np.where(np.arange(self._padded) < self._rows, 0, UNUSED).astype("float32")
        scores = relax.op.add(args[0], relax.const(unused.reshape(shape)))
        return relax.op.nn.softmax(self.builder_.emit(scores), axis=axis)

    def _plain(self, old: Iterable[Any], new: Iterable[Any]) -> list[Any]:
        return [plain(*each, self.builder_.emit) for each in zip(old, new, strict=True)]

    def _grown(self, old: Any, new: Any) -> Any:
        """Return the tensor with rows of zeros, if it has rows and they are not padded yet."""
        shape = known_extents(old)
        if self._rows not in shape or is_padded(old, new):
            return new
        more = [(0, self._padded - self._rows if one == self._rows else 0) for one in shape]
        if isinstance(new, tvm.ir.expr.GenericConst):
            array = new.value.numpy()
            # An all-masked row would give NaN, so the last row of a mask is repeated.
            return relax.const(np.pad(array, more, "edge" if array.dtype == bool else "constant"))
        return self.builder_.emit(relax.op.nn.pad(new, [width for each in more for width in each]))


def least_sign(tensor: Any, value_of: Callable[[Any], Any], depth: int = 6) -> int:
    """Return 2 if every element is above zero, 1 if none is below, 0 if neither can be shown.

    It follows at most ``depth`` operators.
    """
    value = behind(tensor, value_of)
    number = value.value if isinstance(value, tvm.tirx.FloatImm) else None
    if isinstance(value, tvm.ir.expr.GenericConst):
        number = value.value.numpy()
    if number is not None:
        return int(np.all(np.greater(number, 0))) + int(np.all(np.greater_equal(number, 0)))
    name = named(value)
    if name in SIGNS:
        return SIGNS[name]
    if not name or not depth:
        return 0
    signs = [least_sign(one, value_of, depth - 1) for one in value.args[:2]]
    if name == "relax.add":
        return max(signs) if min(signs) else 0
    if name in ("relax.multiply", "relax.divide"):
        return max(min(signs), int(value.args[0].same_as(value.args[1])))
    if name in ("relax.maximum", "relax.clip"):
        return max(signs)
    if name == "relax.sqrt":
        return max(signs[0], 1)
    return signs[0] if name in {TRANSPOSE, *RESHAPES, *REDUCTIONS} else 0


def is_padded(old: Any, new: Any) -> bool:
    """Return whether a tensor, or one of a tuple, has other extents than the old one."""
    if isinstance(old, relax.Tuple):
        return any(map(is_padded, old.fields, new.fields))
    return known_extents(old) != known_extents(new)


def plain(old: Any, new: Any, emit: Callable[[Any], Any]) -> Any:
    """Return the tensor, or the tuple, without the added ends."""
    if isinstance(old, relax.Tuple):
        fields = [plain(*each, emit) for each in zip(old.fields, new.fields, strict=True)]
        return relax.Tuple(fields)
    if not is_padded(old, new):
        return new
    before, after = known_extents(old), known_extents(new)
    axes = [axis for axis, extent in enumerate(before) if extent != after[axis]]
    ends = [before[axis] for axis in axes]
    return emit(relax.op.strided_slice(new, axes, [0] * len(axes), ends))


def _fields(parts: Any, value_of: Callable[[Any], Any]) -> list[Any] | None:
    """Return the fields of a tuple, or of the tuple behind a variable."""
    if isinstance(parts, relax.Var):
        parts = value_of(parts)
    return list(parts.fields) if isinstance(parts, relax.Tuple) else None
