"""Extents of the axes that AutoTVM knobs split, from the shapes of the workload.

AutoTVM writes -1 for the outermost factor of a split. It follows from the axis' extent, which is in
the task's arguments: tensors are ``["TENSOR", shape, dtype]``. Which knob splits which axis is a
convention of TVM's operator library (TVM 0.8 to 0.13 ``python/tvm/topi/{x86,cuda,arm_cpu,mali,
generic}``). Unknown operators are left out: their outermost factor is unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_CONV_KNOBS = (
    "tile_n",
    "tile_oc tile_co tile_f tile_c",
    "tile_ic tile_rc tile_ci",
    "tile_oh tile_y tile_h tile_p",
    "tile_ow tile_x tile_w tile_q",
    "tile_ry tile_kh",
    "tile_rx tile_kw",
)
"""Knobs that split batch, filters, channels, output height and width, kernel height and width."""


def axis_extents(task_name: str, arguments: Sequence[Any]) -> dict[str, int]:
    """Map knob names (``tile_oc``) to the extent of the axis that they split.

    Empty if the operator or its arguments are unknown.
    """
    name = task_name.rpartition("/")[2].lower()
    axes = next((axes for part, axes in _OPERATORS.items() if part in name), None)
    if axes is None:
        return {}
    try:
        return {knob: extent for knob, extent in axes(name, arguments).items() if extent > 0}
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return {}


def _shape(argument: Any) -> list[int]:
    if not (isinstance(argument, (list, tuple)) and len(argument) == 3 and argument[0] == "TENSOR"):
        raise ValueError("not a tensor")
    shape = list(argument[1])
    if not all(type(size) is int for size in shape):
        raise ValueError("a symbolic shape")
    return shape


def _pair(value: Any) -> tuple[int, int]:
    parts = [value] if type(value) is int else list(value)
    if len(parts) not in (1, 2):
        raise ValueError("not a pair")
    return int(parts[0]), int(parts[-1])


def _padding(padding: Any) -> tuple[int, int]:
    """Total padding of height and width (both sides together)."""
    if padding == "VALID":
        return 0, 0
    if type(padding) is not int and len(padding) == 4:
        top, left, bottom, right = (int(side) for side in padding)
        return top + bottom, left + right
    height, width = _pair(padding)
    return 2 * height, 2 * width


def _spatial(
    sizes: Sequence[int], kernel: Sequence[int], strides: Any, padding: Any, dilation: Any
) -> list[int]:
    """Output height and width of a convolution."""
    stride, dilated = _pair(strides), _pair(dilation)
    if padding == "SAME":  # only the stride matters
        return [-(-size // step) for size, step in zip(sizes, stride, strict=True)]
    more = _padding(padding)
    return [
        (sizes[axis] + more[axis] - (kernel[axis] - 1) * dilated[axis] - 1) // stride[axis] + 1
        for axis in (0, 1)
    ]


def _conv_knobs(*extents: int) -> dict[str, int]:
    axes = zip(_CONV_KNOBS, extents, strict=True)
    return {knob: extent for knobs, extent in axes for knob in knobs.split()}


def _image(name: str, data: list[int]) -> tuple[int, int, list[int]]:
    """Batch, channels, [height, width] of a convolution's input."""
    if len(data) == 5:  # NCHWc: channels in two axes
        return data[0], data[1] * data[4], data[2:4]
    if len(data) != 4:
        raise ValueError("not an image")
    if "nhwc" in name:
        return data[0], data[3], data[1:3]
    return data[0], data[1], data[2:]


def _convolution(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    data, weight = _shape(arguments[0]), _shape(arguments[1])
    batch, channels, sizes = _image(name, data)
    if "transpose" in name:
        return _transposed(arguments, batch, channels, sizes, weight)
    if len(weight) == 6:  # OIHWio
        kernel = weight[2:4]
        filters, inputs = weight[0] * weight[5], weight[1] * weight[4]
    elif len(weight) != 4:
        raise ValueError("not a kernel")
    elif "nhwc" in name:  # HWIO, for depthwise HWCM
        kernel, (inputs, filters) = weight[:2], weight[2:]
    else:  # OIHW, for depthwise CMHW
        (filters, inputs), kernel = weight[:2], weight[2:]
    if "depthwise" in name:
        filters, inputs = filters * inputs if len(weight) == 4 else filters, channels
    out = _spatial(sizes, kernel, *arguments[2:5])
    return _conv_knobs(batch, filters, inputs, *out, *kernel)


def _transposed(
    arguments: Sequence[Any], batch: int, channels: int, sizes: list[int], weight: list[int]
) -> dict[str, int]:
    """``conv2d_transpose_nchw`` (data, kernel IOHW, strides, padding, dtype, output padding)."""
    stride, kernel, padded = _pair(arguments[2]), weight[2:4], _padding(arguments[3])
    extra = _pair(arguments[5]) if len(arguments) > 5 else (0, 0)
    out = [
        (sizes[axis] - 1) * stride[axis] - padded[axis] + kernel[axis] + extra[axis]
        for axis in (0, 1)
    ]
    return _conv_knobs(batch, weight[1], channels, *out, *kernel)


def _winograd(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    """``conv2d_nchw_winograd.cuda``: a batch of alpha² products (filters, inputs) x (inputs, P).

    The tile size is 4 where the image's height is a multiple of 8, else 2
    (``topi/cuda/conv2d_winograd.py``, ``_infer_tile_size``).
    """
    if "nchw" not in name or "without_weight" in name:
        return {}
    data, weight = _shape(arguments[0]), _shape(arguments[1])
    batch, channels, sizes = _image(name, data)
    kernel = (weight[2], weight[3])
    if kernel[0] != kernel[1]:
        return {}
    out = _spatial(sizes, kernel, *arguments[2:5])
    tile = 4 if sizes[0] % 8 == 0 else 2
    alpha = tile + kernel[0] - 1
    positions = batch * -(-out[0] // tile) * -(-out[1] // tile)
    return {"tile_b": alpha**2, "tile_y": weight[0], "tile_x": positions, "tile_rc": channels}


def _tutorial_conv2d(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    """The tutorial's (N, H, W, CO, CI, KH, KW, stride, padding)."""
    batch, height, width, filters, channels, *kernel = (int(size) for size in arguments[:7])
    out = _spatial((height, width), kernel, arguments[7], arguments[8], 1)
    return _conv_knobs(batch, filters, channels, *out, *kernel)


def _batch_matmul(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    """(x, y, out shape, dtype, transpose a, transpose b); y is transposed by default."""
    x, y = _shape(arguments[0]), _shape(arguments[1])
    transposed_a = bool(arguments[4]) if len(arguments) > 4 else False
    transposed_b = bool(arguments[5]) if len(arguments) > 5 else True
    rows, inner = (x[2], x[1]) if transposed_a else (x[1], x[2])
    return {"tile_y": rows, "tile_x": y[1] if transposed_b else y[2], "tile_k": inner}


def _dense(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    if arguments and type(arguments[0]) is int:  # the tutorial's matmul (N, L, M, dtype)
        rows, inner, columns = (int(size) for size in arguments[:3])
        return {"tile_y": rows, "tile_x": columns, "tile_k": inner}
    (rows, inner), weight = _shape(arguments[0]), _shape(arguments[1])
    if len(weight) == 3:  # packed: columns in two axes
        columns = weight[0] * weight[2]
    elif inner in weight[:2]:
        columns = weight[0] if weight[1] == inner else weight[1]
    else:
        return {}
    if "batch" in name:  # dense_large_batch, dense_small_batch: x runs over the batch
        return {"tile_x": rows, "tile_y": columns, "tile_k": inner}
    return {"tile_y": rows, "tile_x": columns, "tile_k": inner, "tile_inner": rows}


_OPERATORS = {
    "winograd": _winograd,
    "conv2d_no_batching": _tutorial_conv2d,
    "conv": _convolution,
    "batch_matmul": _batch_matmul,
    "dense": _dense,
    "matmul": _dense,
}
"""Function by a part of an operator's name; the first part that the name contains counts."""
