"""Elementwise operators on a convolution's output before anything else uses it.

An epilogue has one input and one output. In between, a value may be used several times, as in
x * sigmoid(x).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tvm
from tvm import relax, tirx

from toolkit.networks.graph.functions import known_shape, named

ESTIMATED_FLOPS = "estimated_flops"
"""TVM's attribute for the operations of a function; TVM counts none in named values (``Let``)."""


@dataclass(frozen=True)
class Operand:
    """Operand of a step.

    ``value`` 0 is the convolution's element, ``value`` n the result of the nth step. ``given`` n is
    an element of the nth tensor that the epilogue gets. ``number`` is a number.
    """

    kind: Literal["value", "given", "number"]
    at: float


Step = tuple[str, tuple[Operand, ...]]
"""One operation of an epilogue: Relax's operator and its operands."""

Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Epilogue:
    """Steps in order; the last one computes the result.

    ``given``: constants with one number per channel (arrays), and variables of the output's shape.
    """

    steps: Steps = ()
    given: tuple[Any, ...] = ()

    @property
    def whole(self) -> tuple[bool, ...]:
        """For each tensor in ``given``: whether it is a variable of the output's shape."""
        return tuple(isinstance(one, relax.Var) for one in self.given)


def finished(value: Any, steps: Steps, given: Sequence[Any]) -> Any:
    """Return the TIR expression of a convolution's element after the steps of its epilogue.

    ``given`` holds the elements of the tensors that the epilogue gets.
    """

    def after(values: list[Any], steps: Steps) -> Any:
        if not steps:
            return values[-1]
        name, operands = steps[0]
        made = _OPERATORS[name](*(_element(one, values, given) for one in operands))
        return _shared(made, lambda one: after([*values, one], steps[1:]))

    return _shared(value, lambda one: after([one], steps))


def _element(one: Operand, values: Sequence[Any], given: Sequence[Any]) -> Any:
    if one.kind == "number":
        return _number(one.at)
    return (values if one.kind == "value" else given)[int(one.at)]


def given_to(steps: Steps) -> int:
    """Return the number of tensors that the steps get."""
    return sum(one.kind == "given" for _, operands in steps for one in operands)


def epilogue_of(
    variable: relax.Var,
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
    order: Mapping[Any, int],
    results: Sequence[Any],
) -> tuple[Epilogue, relax.Var]:
    """Return the longest epilogue of a convolution's result, and the variable in which it ends.

    ``values``, ``users`` and ``results`` are those of the function (``functions.uses``). ``order``
    has each variable's position among the bindings.
    """
    shape = known_shape(variable)
    places: dict[Any, int] = {variable: 0}
    steps: list[Step] = []
    given: list[Any] = []
    found, last, at = Epilogue(), variable, variable
    pending: set[Any] = set()
    while at not in results:
        pending |= set(users.get(at, ()))
        if not pending:
            break
        at = min(pending, key=lambda one: order.get(one, len(order)))
        pending.remove(at)
        step = _step(values[at], places, given, shape)
        if step is None:
            break
        steps.append(step)
        places[at] = len(steps)
        if not pending:  # the steps include all users of earlier values
            found, last = Epilogue(tuple(steps), tuple(given)), at
    return found, last


def _step(
    call: Any, places: Mapping[Any, int], given: list[Any], shape: list[int] | None
) -> Step | None:
    """Return the step that a call is, or ``None``; may add to ``given``."""
    name = named(call)
    if name not in _OPERATORS or known_shape(call) != shape or str(call.ty.dtype) != "float32":
        return None
    operands = (_operand(argument, places, given, shape) for argument in call.args)
    known = tuple(one for one in operands if one is not None)
    return (name, known) if len(known) == len(call.args) else None


def _operand(
    argument: Any, places: Mapping[Any, int], given: list[Any], shape: list[int] | None
) -> Operand | None:
    if isinstance(argument, tirx.FloatImm | tirx.IntImm):
        return Operand("number", float(argument.value))
    if isinstance(argument, tvm.ir.expr.GenericConst):
        array = argument.value.numpy()
        if array.size == 1:
            return Operand("number", float(array.reshape(-1)[0]))
        if not shape or array.size != shape[-1] or array.shape[-1] != shape[-1]:
            return None
        given.append(np.ascontiguousarray(array.reshape(-1)))
    elif not isinstance(argument, relax.Var):
        return None
    elif argument in places:
        return Operand("value", places[argument])
    elif known_shape(argument) == shape:
        given.append(argument)
    else:
        return None
    return Operand("given", len(given) - 1)


def _shared(value: Any, use: Callable[[Any], Any]) -> Any:
    """Return the result of ``use`` with the value bound to a variable: it is computed once."""
    variable = tirx.Var("shared", "float32")
    return tirx.Let(variable, value, use(variable))


def _clip(x: Any, low: Any, high: Any) -> Any:
    return tirx.min(tirx.max(x, low), high)


def _one_and_exp_of_minus(x: Any) -> Any:
    return _exp(_number(0.0) - x) + _number(1.0)


def _exp(x: Any) -> Any:
    """Return 2^n exp(f) with n whole and f small (Cephes' ``expf``); TIR's ``exp`` calls a library.

    The argument is limited to -87 and 88.
    """

    def power(x: Any) -> Any:
        n = tirx.floor(x * _number(1.44269504088896341) + _number(0.5))
        return _shared(n, lambda n: scaled(x, n))

    def scaled(x: Any, n: Any) -> Any:
        f = x - n * _number(0.693359375) + n * _number(2.12194440e-4)  # ln 2 in two parts
        exponent = (n.astype("int32") + tirx.const(127, "int32")) << tirx.const(23, "int32")
        return _shared(f, polynomial) * tirx.reinterpret("float32", exponent)

    def polynomial(f: Any) -> Any:
        y = _number(_EXP[0])
        for factor in _EXP[1:]:
            y = y * f + _number(factor)
        return y * f * f + f + _number(1.0)

    return _shared(_clip(x, _number(-87.0), _number(88.0)), power)


_EXP = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip


def _number(value: float) -> Any:
    return tirx.const(value, "float32")


_OPERATORS: dict[str, Callable[..., Any]] = {
    "relax.add": operator.add,
    "relax.subtract": operator.sub,
    "relax.multiply": operator.mul,
    "relax.divide": operator.truediv,
    "relax.maximum": tirx.max,
    "relax.minimum": tirx.min,
    "relax.clip": _clip,
    "relax.nn.relu": lambda x: tirx.max(x, _number(0.0)),
    "relax.nn.silu": lambda x: x / _one_and_exp_of_minus(x),
    "relax.sigmoid": lambda x: _number(1.0) / _one_and_exp_of_minus(x),
}
