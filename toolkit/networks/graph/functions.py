"""Questions about a module or a Relax function, and ways to rewrite it, for passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm
from tvm import relax

UNKNOWN = (AttributeError, TypeError, ValueError)
"""Errors that are raised when a shape is not known."""


def mutate(
    module: tvm.IRModule, make: Callable[[tvm.IRModule, relax.Function], Any]
) -> tvm.IRModule:
    """Rewrite each Relax function by the ``PyExprMutator`` that ``make`` returns for it.

    ``make`` gets the module with all earlier changes, and the function.
    """
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutator = make(module, function)
            mutator.builder_.update_func(name, mutator.visit_expr(function))
            module = mutator.builder_.get()
    return module


def tidied(module: tvm.IRModule) -> tvm.IRModule:
    """Bind every call to a variable, and remove unused bindings."""
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(module))


def relax_functions(module: tvm.IRModule) -> list[relax.Function]:
    """Return the module's Relax functions."""
    return [f for f in module.functions.values() if isinstance(f, relax.Function)]


def nodes_of(module: tvm.IRModule) -> list[Any]:
    """Return all nodes of the module's Relax functions."""
    nodes: list[Any] = []
    for function in relax_functions(module):
        relax.analysis.post_order_visit(function, nodes.append)
    return nodes


def extents(expression: Any) -> list[int]:
    """Return the extents of an expression; raise one of ``UNKNOWN`` if they are not known."""
    return [int(extent) for extent in expression.ty.shape.values]


def known_shape(expression: Any) -> list[int] | None:
    """Return the extents of an expression; ``None`` if they are not known."""
    try:
        return extents(expression)
    except UNKNOWN:
        return None


def named(node: Any) -> str:
    """Return the name of the operator that a node calls; empty if it is not such a call."""
    is_operator = isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op)
    return str(node.op.name) if is_operator else ""


def call_again(call: Any, args: Iterable[Any]) -> Any:
    """Return the same call with other arguments."""
    return relax.Call(call.op, list(args), call.attrs, call.ty_args)


def behind(expression: Any, value_of: Callable[[Any], Any]) -> Any:
    """Return the value of a variable, through all its other names; else the expression itself."""
    while isinstance(expression, relax.Var):
        expression = value_of(expression)
    return expression


def uses(function: relax.Function) -> tuple[Any, dict[Any, list[Any]], list[Any]]:
    """Return variables' values, by variable those whose values use it, and the results.

    Results are the variables that the function returns: they must not be replaced.
    """
    values, users = relax.analysis.get_var2val(function), dict[Any, list[Any]]()
    for variable, value in values.items():
        for used in relax.analysis.free_vars(value):
            users.setdefault(used, []).append(variable)
    return values, users, list(relax.analysis.free_vars(function.body.body))


def returned_by(function: relax.Function, values: Any) -> set[Any]:
    """Return the variables that a function returns: directly, by another name, or in a tuple."""
    found, left = set(), list(relax.analysis.free_vars(function.body.body))
    while left:
        variable = left.pop()
        found.add(variable)
        value = values.get(variable)
        parts = value.fields if isinstance(value, relax.Tuple) else [value]
        left += [one for one in parts if isinstance(one, relax.Var)]
    return found
