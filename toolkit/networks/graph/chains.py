"""Convolutions with constant weights, and what is done to their outputs one element at a time.

A chain is a convolution and its epilogue. It can be replaced as a whole: what stands for the
convolution does the rest while it writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.epilogues import Epilogue, epilogue_of
from toolkit.networks.graph.functions import extents, mutate_functions, named, results_of, users_of


@dataclass(frozen=True)
class Chain:
    """A convolution in channels last, and the epilogue after it.

    Attributes
    ----------
    source
        What is convolved: a variable of shape (images, rows, columns, channels).
    weight
        Array of shape (rows, columns, channels, filters).
    last
        The call that computes the chain's result.
    type
        Of the result: (images, rows, columns, filters).
    before
        The chain whose result is convolved, when nothing else uses it.
    planar
        The same source in channels first, where it was transposed from it.
    """

    convolution: relax.Call
    source: relax.Var
    weight: Any
    epilogue: Epilogue
    last: relax.Call
    type: Any
    before: Chain | None = None
    planar: relax.Var | None = None


Replace = Callable[[Chain, Any, "Rewriter"], Any]
"""Gives the expression that stands for a chain, or ``None``: called with the chain, a function that
looks a variable up in the new module, and what functions are added to."""


def replace_chains(module: tvm.IRModule, replace: Replace) -> tvm.IRModule:
    """Rewrite every chain of a module's Relax functions that ``replace`` has something for."""
    made = mutate_functions(module, lambda at, one: Rewriter(at, chains_of(one), replace))
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(made))


def chains_of(function: relax.Function) -> list[Chain]:
    """List a function's chains, each as long as it goes."""
    values = relax.analysis.get_var2val(function)
    users = users_of(values)
    results = results_of(function)
    bindings = (one for block in function.body.blocks for one in block.bindings)
    order = {binding.var: place for place, binding in enumerate(bindings)}
    found: dict[Any, Chain] = {}
    for variable, value in values.items():
        weight = _weight(value)
        if weight is None:
            continue
        epilogue, at = epilogue_of(variable, values, users, order, results)
        source = value.args[0]
        planar = _planar(values.get(source))
        found[at] = Chain(value, source, weight, epilogue, values[at], value.ty, planar=planar)
    alone = {at for at in found if at not in results and len(users.get(at, [])) == 1}
    return [
        dataclasses.replace(one, before=found[one.source] if one.source in alone else None)
        for one in found.values()
    ]


def _planar(call: Any) -> relax.Var | None:
    """What a call brings from channels first into channels last; ``None`` for other calls."""
    if named(call) != "relax.permute_dims" or call.attrs.axes is None:
        return None
    (given,) = call.args
    last = [int(axis) for axis in call.attrs.axes] == [0, 2, 3, 1]
    return given if last and isinstance(given, relax.Var) else None


def _weight(call: Any) -> Any:
    """Constant weights of a convolution whose layouts and shapes are known; ``None`` for others."""
    if not isinstance(call, relax.Call) or call.op != tvm.ir.Op.get("relax.nn.conv2d"):
        return None
    source, weight = call.args
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    if layouts != ("NHWC", "HWIO") or not isinstance(weight, tvm.ir.expr.GenericConst):
        return None
    if not isinstance(source, relax.Var) or str(call.ty.dtype) != "float32":
        return None
    try:
        extents(source), extents(call)
    except (AttributeError, TypeError, ValueError):  # a shape that is not known
        return None
    return weight.value.numpy()


@mutator
class Rewriter(PyExprMutator):  # type: ignore[misc]
    """Puts what ``replace`` gives in the place of a chain's last call."""

    def __init__(self, module: tvm.IRModule, chains: list[Chain], replace: Replace) -> None:
        super().__init__(module)
        self._chains = chains
        self._replace = replace

    def add(self, function: Any, name: str) -> tvm.ir.GlobalVar:
        """Add a function to the module; its name is made unique."""
        return self.builder_.add_func(function, name)

    def emit(self, expression: Any) -> relax.Var:
        """Bind an expression before the call that is replaced."""
        return self.builder_.emit(expression)

    def visit_call_(self, call: Any) -> Any:
        """Replace the call when it ends a chain."""
        visited = self.visit_expr_post_order(call)
        for chain in self._chains:
            if chain.last.same_as(call):
                made = self._replace(chain, self.visit_expr, self)
                return visited if made is None else made
        return visited
