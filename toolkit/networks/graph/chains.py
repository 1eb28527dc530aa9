"""Convolutions with constant weights, and the elementwise operators on their outputs.

A chain is a convolution and its epilogue. It can be replaced as a whole: the function that replaces
the convolution computes the epilogue while it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.epilogues import Epilogue, epilogue_of
from toolkit.networks.graph.functions import known_shape, mutate, named, tidied, uses
from toolkit.networks.graph.movements import TRANSPOSE, axes_of


@dataclass(frozen=True)
class Chain:
    """A convolution in channels last, and the epilogue after it.

    Shapes: (images, rows, columns, channels) of ``source``, a variable; (rows, columns, channels,
    filters) of ``weight``, an array; (images, rows, columns, filters) of the result. ``before`` is
    the chain that computes ``source``, if nothing else uses it. ``planar``: the tensor in channels
    first that ``source`` is a transpose of.
    """

    convolution: relax.Call
    source: relax.Var
    weight: Any
    epilogue: Epilogue
    before: Chain | None = None
    planar: relax.Var | None = None


Replace = Callable[[Chain, PyExprMutator], Any]
"""Returns the expression that replaces a chain, or ``None``. The mutator's ``visit_expr`` looks up
a variable in the new module. Its builder adds functions, and calls before this one."""


def replace_chains(module: tvm.IRModule, replace: Replace) -> tvm.IRModule:
    """Rewrite every chain of a module's Relax functions for which ``replace`` returns something."""
    return tidied(mutate(module, lambda at, one: _Rewriter(at, one, replace)))


def _chains_of(function: relax.Function) -> dict[Any, Chain]:
    """Return a function's chains, each as long as possible, by the call that ends it."""
    values, users, results = uses(function)
    bindings = (one for block in function.body.blocks for one in block.bindings)
    order = {binding.var: place for place, binding in enumerate(bindings)}
    found: dict[Any, Chain] = {}
    for variable, value in values.items():
        weight = _weight(value)
        if weight is None:
            continue
        epilogue, at = epilogue_of(variable, values, users, order, results)
        source = value.args[0]
        found[at] = Chain(value, source, weight, epilogue, planar=_planar(values.get(source)))
    alone = {at for at in found if at not in results and len(users.get(at, [])) == 1}
    return {
        values[at]: replace(one, before=found[one.source] if one.source in alone else None)
        for at, one in found.items()
    }


def _planar(call: Any) -> relax.Var | None:
    """Return the argument of a transpose from channels first to channels last; else ``None``."""
    if named(call) != TRANSPOSE or axes_of(call) != [0, 2, 3, 1]:
        return None
    (given,) = call.args
    return given if isinstance(given, relax.Var) else None


def _weight(call: Any) -> Any:
    """Return a convolution's constant weights, if layouts and shapes are known; else ``None``."""
    if named(call) != "relax.nn.conv2d":
        return None
    source, weight = call.args
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    if layouts != ("NHWC", "HWIO") or not isinstance(weight, tvm.ir.expr.GenericConst):
        return None
    if not isinstance(source, relax.Var) or str(call.ty.dtype) != "float32":
        return None
    if known_shape(source) is None or known_shape(call) is None:
        return None
    return weight.value.numpy()


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, function: relax.Function, replace: Replace) -> None:
        super().__init__(module)
        self._chains = _chains_of(function)
        self._replace = replace

    def visit_call_(self, call: Any) -> Any:
        """Replace the call when it ends a chain."""
        visited = self.visit_expr_post_order(call)
        chain = self._chains.get(call)
        made = None if chain is None else self._replace(chain, self)
        return visited if made is None else made
