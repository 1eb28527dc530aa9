"""Pads channels of convolutions and products that fill no whole vectors, or a prime number of them.

A ShuffleNet has 58, 116 and 232 channels: 29 times a power of two. A loop over such a row ends with
a partly filled vector, or its tiles do not fit the registers. With weights of zeros the numbers
become 64, 128 and 240 (for vectors of 16). The next layer reads the added channels with weights of
zeros, too, so the outputs do not change. No copies are made for this: a tensor is padded only if
all its users accept the padding, or if the product is so much work that cutting its result costs
little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.functions import call_again, mutate, named, returned_by, tidied, uses
from toolkit.networks.graph.padding import is_padded, known_extents, plain
from toolkit.networks.graph.reshapes import ONE, TWO

FACTORS = (2, 3, 4, 5, 6, 7, 8)
"""Vectors of channels in a tile: a longer row must have a multiple of one of these numbers."""
HALVED = {"znver4"}
"""Processors that compute vectors of 512 bits in two halves: for them, 256 bits are as fast."""
MOST_MORE = 1 / 5
"""Largest number of added channels, as a share of the original ones."""
WORK = 256
"""Multiply-adds per output from which the result may be cut."""
ROWS = 8
"""Rows from which the result may be cut: with fewer, a product waits for its weights."""

CONVOLUTION, PRODUCT = "relax.nn.conv2d", "relax.matmul"

WINDOWS = {f"relax.nn.{name}" for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d")}
"""Operators that work on each channel by itself, in channels last."""


def pad_channels(module: tvm.IRModule, lanes: int) -> tvm.IRModule:
    """Rewrite a module's Relax functions, where their convolutions are in channels last.

    ``lanes`` is how many float32 a vector holds.
    """
    return tidied(mutate(module, lambda at, one: _Padder(at, _padded_calls(one, lanes), lanes)))


def lanes_of(target: tvm.target.Target) -> int:
    """Return the float32 per vector with which a processor is fastest; 1 for other devices."""
    if target.kind.name != "llvm":
        return 1
    has = tvm.target.codegen.target_has_features
    wide = has("avx512f", target) and target.attrs.get("mcpu") not in HALVED
    return 16 if wide else 8 if has("avx", target) else 4


def padded(channels: int, lanes: int) -> int:
    """Return the number of channels to compute for ``channels``: the same, or whole vectors."""
    most = channels + int(MOST_MORE * channels) if lanes > 1 else channels
    for wanted in range(channels, most + 1):
        vectors, rest = divmod(wanted, lanes)
        if rest == 0 and (vectors <= max(FACTORS) or any(vectors % one == 0 for one in FACTORS)):
            return wanted
    return channels


def _padded_calls(function: relax.Function, lanes: int) -> dict[Any, bool]:
    """Find the calls whose results get more channels: both they and their users can do so.

    The value tells, by call, whether the function returns its result, which is then cut.
    """
    values, users, _ = uses(function)
    returned = returned_by(function, values)
    found: dict[Any, bool] = {}  # whether the result may be cut
    for variable, value in values.items():
        shape = known_extents(value)
        grows = shape[-1] != padded(shape[-1], lanes) and _is_call(value)
        if not grows or str(value.ty.dtype) != "float32":
            continue
        if weights := _weights(value):
            rows = int(np.prod(shape[:-1]))
            found[variable] = rows >= ROWS and int(np.prod(weights[:-1])) >= WORK
        elif (sources := _sources(value, shape)) and all(one in found for one in sources):
            found[variable] = all(found[one] for one in sources)

    def takes(user: Any, variable: Any) -> bool:
        """Return whether the user of a tensor accepts more channels."""
        value = values[user]
        if isinstance(value, relax.Tuple):
            return all(named(values[one]) == "relax.concat" for one in users.get(user, []))
        if named(value) == "relax.concat" or user in found:
            return True
        return bool(_weights(value)) and variable.same_as(value.args[0])

    def stays(variable: Any) -> bool:
        value = values[variable]
        sources = [] if _weights(value) else _sources(value, known_extents(value))
        if any(one not in found for one in sources):
            return False
        of = users.get(variable, [])
        if variable in returned:  # the result is cut at once, so no call may use it
            return found[variable] and not any(map(_is_call, map(values.get, of)))
        return bool(of) and (found[variable] or all(takes(one, variable) for one in of))

    while refused := [variable for variable in found if not stays(variable)]:
        for variable in refused:
            del found[variable]
    return {values[variable]: variable in returned for variable in found}


def _is_call(value: Any) -> bool:
    return isinstance(value, relax.Call)


def _weights(call: Any) -> list[int]:
    """Return extents of the constant weights of a convolution in one group, or of a product."""
    name = named(call)
    if name == CONVOLUTION and (int(call.attrs.groups) != 1 or not _channels_last(call)):
        return []
    if name not in (CONVOLUTION, PRODUCT):
        return []
    shape = known_extents(call.args[1])
    is_constant = isinstance(call.args[1], tvm.ir.expr.GenericConst)
    return shape if is_constant and (name == CONVOLUTION or len(shape) == 2) else []


def _channels_last(call: Any) -> bool:
    layouts = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    return layouts == ("NHWC", "HWIO") and str(call.attrs.out_layout) == "NHWC"


def _is_depthwise(call: Any) -> bool:
    if named(call) != CONVOLUTION or not _channels_last(call):
        return False
    weight, each = call.args[1], [1, int(call.attrs.groups)]
    is_constant = isinstance(weight, tvm.ir.expr.GenericConst)
    return is_constant and known_extents(weight)[-2:] == each == [1, known_extents(call)[-1]]


def _sources(call: Any, shape: Sequence[int]) -> list[Any]:
    """Return the tensors with ``shape[-1]`` channels on which a call works channel by channel."""
    name = named(call)
    if name in WINDOWS:
        through = str(call.attrs.layout) == str(call.attrs.out_layout) == "NHWC"
    elif name == "relax.mean":
        axes = [int(axis) % call.args[0].ty.ndim for axis in call.attrs.axis or ()]
        through = bool(axes) and call.args[0].ty.ndim - 1 not in axes
    elif name == "relax.divide":
        through = not isinstance(call.args[1], relax.Var)  # 0 / 0 is NaN, and times 0 still NaN
    else:
        through = name in ONE | TWO or _is_depthwise(call)
    tensors = [one for one in call.args[: 2 if name in TWO else 1] if isinstance(one, relax.Var)]
    return [one for one in tensors if known_extents(one)[-1] == shape[-1]] if through else []


@mutator
class _Padder(PyExprMutator):  # type: ignore[misc]
    """Visits bindings in order. A tensor is padded if its extents differ from those of the old one.

    Calls that may not accept more channels get tensors with the original ones.
    """

    def __init__(self, module: tvm.IRModule, more: dict[Any, bool], lanes: int) -> None:
        super().__init__(module)
        self._more = more
        self._lanes = lanes

    def visit_call_(self, call: Any) -> Any:
        """Compute more channels, or read them, where ``_padded_calls`` allows it."""
        done = self._with_more(call)
        emit = self.builder_.emit
        return plain(call, emit(done), emit) if self._more.get(call) else done

    def _with_more(self, call: Any) -> Any:
        args = [self.visit_expr(one) for one in call.args]
        more, shape = call in self._more, known_extents(call)
        wanted = padded(shape[-1], self._lanes) if more else shape[-1]
        if more and named(call) in TWO:
            fill = [0, int(named(call) == "relax.divide")]
            args = [_filled(one, shape[-1], wanted, by) for one, by in zip(args, fill, strict=True)]
            return call_again(call, args)
        if _weights(call) and (more or is_padded(call.args[0], args[0])):
            taken = known_extents(args[0])[-1]
            weight = _grown(args[1], {-2: taken, -1: wanted})
            return _with_weight(call, args[0], weight, 1)
        if more and _is_depthwise(call):
            return _with_weight(call, args[0], _grown(args[1], {-1: wanted}), wanted)
        if more:
            return call_again(call, args)
        given = [plain(*each, self.builder_.emit) for each in zip(call.args, args, strict=True)]
        return call_again(call, given)


def _with_weight(call: Any, source: Any, weight: Any, groups: int) -> Any:
    if named(call) == PRODUCT:
        return relax.op.matmul(source, weight, call.attrs.out_dtype or None)
    names = ("strides", "padding", "dilation", "data_layout", "kernel_layout", "out_layout")
    given = {name: call.attrs[name] for name in names}
    return relax.op.nn.conv2d(source, weight, groups=groups, **given)


def _grown(constant: Any, extents: dict[int, int], fill: float = 0) -> Any:
    """Return the constant with some axes grown to an extent."""
    array = constant.value.numpy()
    more = [(0, 0)] * array.ndim
    for axis, extent in extents.items():
        more[axis] = 0, extent - array.shape[axis]
    return relax.const(np.pad(array, more, constant_values=fill), str(constant.ty.dtype))


def _filled(other: Any, channels: int, wanted: int, fill: float) -> Any:
    is_constant = isinstance(other, tvm.ir.expr.GenericConst)
    if is_constant and known_extents(other)[-1:] == [channels]:
        return _grown(other, {-1: wanted}, fill)
    return other
