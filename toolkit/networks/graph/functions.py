"""What passes ask of a module or a Relax function, and how they rewrite it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm
from tvm import relax

UNKNOWN = (AttributeError, TypeError, ValueError)
"""What is raised where a shape is not known."""


def mutate(
    module: tvm.IRModule, make: Callable[[tvm.IRModule, relax.Function], Any]
) -> tvm.IRModule:
    """Rewrite each Relax function by what ``make`` gives for it, a ``PyExprMutator``.

    ``make`` is called with the module as it is by then, and the function.
    """
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutator = make(module, function)
            mutator.builder_.update_func(name, mutator.visit_expr(function))
            module = mutator.builder_.get()
    return module


def tidied(module: tvm.IRModule) -> tvm.IRModule:
    """Bind every call to a variable, and drop what nothing uses."""
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(module))


def relax_functions(module: tvm.IRModule) -> list[relax.Function]:
    """The module's Relax functions."""
    return [f for f in module.functions.values() if isinstance(f, relax.Function)]


def nodes_of(module: tvm.IRModule) -> list[Any]:
    """All that the module's Relax functions consist of."""
    nodes: list[Any] = []
    for function in relax_functions(module):
        relax.analysis.post_order_visit(function, nodes.append)
    return nodes


def extents(expression: Any) -> list[int]:
    """Extents of an expression; raises one of ``UNKNOWN`` where they are not known."""
    return [int(extent) for extent in expression.ty.shape.values]


def known_shape(expression: Any) -> list[int] | None:
    """Extents of an expression; ``None`` where they are not known."""
    try:
        return extents(expression)
    except UNKNOWN:
        return None


def named(node: Any) -> str:
    """The operator that a call is of; empty for what is none."""
    is_operator = isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op)
    return str(node.op.name) if is_operator else ""


def call_again(call: Any, args: Iterable[Any]) -> Any:
    """The same call of other arguments."""
    return relax.Call(call.op, list(args), call.attrs, call.ty_args)


def behind(expression: Any, value_of: Callable[[Any], Any]) -> Any:
    """What a variable stands for, which may be another name of one; all else is itself."""
    while isinstance(expression, relax.Var):
        expression = value_of(expression)
    return expression


def users_of(values: Any) -> dict[Any, list[Any]]:
    """Variables whose values use a variable, by variable; ``values`` as ``get_var2val`` gives."""
    found: dict[Any, list[Any]] = {}
    for variable, value in values.items():
        for used in relax.analysis.free_vars(value):
            found.setdefault(used, []).append(variable)
    return found


def results_of(function: relax.Function) -> list[Any]:
    """Variables that a function returns: nothing may take their place."""
    return list(relax.analysis.free_vars(function.body.body))


def returned_by(function: relax.Function, values: Any) -> set[Any]:
    """Variables that leave a function: by themselves, by another name, or in a tuple."""
    found, left = set(), results_of(function)
    while left:
        variable = left.pop()
        found.add(variable)
        value = values.get(variable)
        parts = value.fields if isinstance(value, relax.Tuple) else [value]
        left += [one for one in parts if isinstance(one, relax.Var)]
    return found
