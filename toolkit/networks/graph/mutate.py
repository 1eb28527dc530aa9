"""Rewrites the Relax functions of a module, one after another."""

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
