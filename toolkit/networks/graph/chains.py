"""Convolutions with constant weights, and what is done to their outputs one element at a time.

A chain is a convolution, then additions, ReLUs and clips, each the only user of the one before. It
can be replaced as a whole: what stands for the convolution does the rest while it writes.
What other passes ask of a function, too, stands here: who uses a variable, which operator a call is
of, which extents it has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

ADD, RELU, CLIP = "relax.add", "relax.nn.relu", "relax.clip"


@dataclass(frozen=True)
class Elementwise:
    """What is done to every element: an operator, and what it is given beside the element.

    ``other`` is what ``ADD`` adds: a constant of one number a channel (an array), or a variable of
    the output's shape. ``bounds`` are those of ``CLIP``.
    """

    operator: str
    other: Any = None
    bounds: tuple[float, float] | None = None


Steps = tuple[tuple[str, tuple[float, float] | None], ...]
"""Operator and bounds of each elementwise operation: what a kernel of an epilogue hangs on."""


def steps_of(epilogue: Iterable[Elementwise]) -> Steps:
    """What ``finished`` does for an epilogue."""
    return tuple((each.operator, each.bounds) for each in epilogue)


def finished(value: Any, steps: Steps, added: Iterable[Any]) -> Any:
    """TIR's expression of an element of a convolution, after the steps of its epilogue.

    ``added`` are the elements that are added to it, in the steps' order.
    """
    left = iter(added)
    for operator, bounds in steps:
        if operator == ADD:
            value = value + next(left)
        elif operator == RELU:
            value = tirx.max(value, tirx.const(0.0, "float32"))
        elif operator == CLIP and bounds is not None:
            low, high = (tirx.const(bound, "float32") for bound in bounds)
            value = tirx.min(tirx.max(value, low), high)
    return value


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
    """

    convolution: relax.Call
    source: relax.Var
    weight: Any
    epilogue: tuple[Elementwise, ...]
    last: relax.Call
    type: Any
    before: Chain | None = None


Replace = Callable[[Chain, Any, "Rewriter"], Any]
"""Gives the expression that stands for a chain, or ``None``: called with the chain, a function that
looks a variable up in the new module, and what functions are added to."""


def replace_chains(module: tvm.IRModule, replace: Replace) -> tvm.IRModule:
    """Rewrite every chain of a module's Relax functions that ``replace`` has something for."""
    made = mutate_functions(module, lambda at, one: Rewriter(at, chains_of(one), replace))
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(made))


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


def chains_of(function: relax.Function) -> list[Chain]:
    """List a function's chains, each as long as it goes."""
    values = relax.analysis.get_var2val(function)
    users = users_of(values)
    results = results_of(function)
    found: dict[Any, Chain] = {}
    for variable, value in values.items():
        weight = _weight(value)
        if weight is None:
            continue
        epilogue, last, at = [], value, variable
        while at not in results and len(users.get(at, [])) == 1:
            (user,) = users[at]
            each = _elementwise(values[user], at, value)
            if each is None:
                break
            epilogue.append(each)
            last, at = values[user], user
        found[at] = Chain(value, value.args[0], weight, tuple(epilogue), last, value.ty)
    alone = {at for at in found if at not in results and len(users.get(at, [])) == 1}
    return [
        dataclasses.replace(one, before=found[one.source] if one.source in alone else None)
        for one in found.values()
    ]


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


def _elementwise(call: Any, before: relax.Var, convolution: Any) -> Elementwise | None:
    """What a call does to the elements of ``before``; ``None`` when it does anything else."""
    name = named(call)
    if not name:
        return None
    shape = extents(convolution)
    if name == RELU:
        return Elementwise(RELU)
    if name == CLIP:
        low, high = (float(bound.value) for bound in call.args[1:])
        return Elementwise(CLIP, bounds=(low, high))
    if name != ADD or extents(call) != shape:
        return None
    other = call.args[1] if before.same_as(call.args[0]) else call.args[0]
    if isinstance(other, tvm.ir.expr.GenericConst):
        array = other.value.numpy()
        if array.size == 1 or array.shape[-1:] == (array.size,) == (shape[-1],):
            return Elementwise(ADD, np.broadcast_to(array.reshape(-1), (shape[-1],)).copy())
        if array.size == shape[-1] and array.ndim == 4 and array.shape[3] == shape[-1]:
            return Elementwise(ADD, array.reshape(-1))
        return None
    if isinstance(other, relax.Var) and not other.same_as(before) and extents(other) == shape:
        return Elementwise(ADD, other)
    return None


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
