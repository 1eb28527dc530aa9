"""What passes ask of a Relax function: who uses a variable, which operator a call is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax


def mutate_functions(
    module: tvm.IRModule, make: Callable[[tvm.IRModule, relax.Function], Any]
) -> tvm.IRModule:
    """Rewrite each Relax function by what ``make`` gives for it, a ``PyExprMutator``.

    It is called with the module as it is by then, and the function.
    """
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutator = make(module, function)
            mutator.builder_.update_func(name, mutator.visit_expr(function))
            module = mutator.builder_.get()
    return module


def extents(expression: Any) -> list[int]:
    """Extents of an expression whose shape is known."""
    return [int(extent) for extent in expression.ty.shape.values]


def named(node: Any) -> str:
    """The operator that a call is of; empty for what is none."""
    is_operator = isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op)
    return str(node.op.name) if is_operator else ""


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
