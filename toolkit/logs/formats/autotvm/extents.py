"""Extents of the axes that AutoTVM knobs split, as far as the workload's shapes tell them.

AutoTVM writes -1 for the outermost factor of a split. It follows from the axis' extent, which
stands in the task's arguments: tensors are ``["TENSOR", shape, dtype]``. Which knob splits which
axis is a convention of TVM's operator library (TVM 0.8 to 0.13 ``python/tvm/topi/{x86,cuda,
arm_cpu,mali,generic}``). What is not understood is left out: the outermost factor is then
unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_CONV_KNOBS = {
    "n": ("tile_n",),
    "oc": ("tile_oc", "tile_co", "tile_f", "tile_c"),
    "ic": ("tile_ic", "tile_rc", "tile_ci"),
    "oh": ("tile_oh", "tile_y", "tile_h", "tile_p"),
    "ow": ("tile_ow", "tile_x", "tile_w", "tile_q"),
    "kh": ("tile_ry", "tile_kh"),
    "kw": ("tile_rx", "tile_kw"),
}


def axis_extents(task_name: str, arguments: Sequence[Any]) -> dict[str, int]:
    """Map knob names (``tile_oc``) to the extent of the axis that they split.

    Empty where the operator or its arguments are not understood.
    """
    name = task_name.rpartition("/")[2].lower()
    try:
        if "winograd" in name:
            axes = _winograd(name, arguments)
        elif "conv2d_no_batching" in name:
            axes = _tutorial_conv2d(arguments)
        elif "conv" in name:
            axes = _convolution(name, arguments)
        elif "batch_matmul" in name:
            axes = _batch_matmul(arguments)
        elif "dense" in name or "matmul" in name:
            axes = _dense(name, arguments)
        else:
            axes = {}
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return {}
    return {knob: extent for knob, extent in axes.items() if extent > 0}


def _shape(argument: Any) -> list[int]:
    if not (isinstance(argument, (list, tuple)) and len(argument) == 3 and argument[0] == "TENSOR"):
        raise ValueError("not a tensor")
    shape = list(argument[1])
    if not all(type(size) is int for size in shape):
        raise ValueError("a symbolic shape")
    return shape


def _pair(value: Any) -> tuple[int, int]:
    if type(value) is int:
        return value, value
    if len(value) == 1:
        return int(value[0]), int(value[0])
    if len(value) != 2:
        raise ValueError("not a pair")
    return int(value[0]), int(value[1])


def _padded(sizes: Sequence[int], kernel: Sequence[int], padding: Any) -> tuple[int, int] | None:
    """Sizes with padding added; ``None`` for SAME, where the stride alone decides."""
    if padding == "SAME":
        return None
    if padding == "VALID":
        return sizes[0], sizes[1]
    if type(padding) is not int and len(padding) == 4:
        top, left, bottom, right = (int(side) for side in padding)
    else:
        top, left = bottom, right = _pair(padding)
    return sizes[0] + top + bottom, sizes[1] + left + right


def _spatial(
    sizes: Sequence[int], kernel: Sequence[int], strides: Any, padding: Any, dilation: Any
) -> tuple[int, int]:
    """Output height and width of a convolution."""
    stride, dilated = _pair(strides), _pair(dilation)
    padded = _padded(sizes, kernel, padding)
    if padded is None:
        return -(-sizes[0] // stride[0]), -(-sizes[1] // stride[1])
    out = [
        (padded[axis] - (kernel[axis] - 1) * dilated[axis] - 1) // stride[axis] + 1
        for axis in (0, 1)
    ]
    return out[0], out[1]


def _named(axes: dict[str, int]) -> dict[str, int]:
    return {knob: axes[axis] for axis, knobs in _CONV_KNOBS.items() for knob in knobs}


def _image(name: str, data: list[int]) -> tuple[int, int, int, int]:
    """Batch, channels, height, width of a convolution's input."""
    if len(data) == 5:  # NCHWc: channels in two axes
        return data[0], data[1] * data[4], data[2], data[3]
    if len(data) != 4:
        raise ValueError("not an image")
    if "nhwc" in name:
        return data[0], data[3], data[1], data[2]
    return data[0], data[1], data[2], data[3]


def _convolution(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    data, weight = _shape(arguments[0]), _shape(arguments[1])
    batch, channels, height, width = _image(name, data)
    depthwise = "depthwise" in name
    if "transpose" in name:
        return _transposed(arguments, (batch, channels, height, width), weight)
    if len(weight) == 6:  # OIHWio
        kernel = (weight[2], weight[3])
        filters, inputs = weight[0] * weight[5], weight[1] * weight[4]
    elif len(weight) != 4:
        raise ValueError("not a kernel")
    elif "nhwc" in name:  # HWIO, for depthwise HWCM
        kernel = (weight[0], weight[1])
        filters, inputs = weight[3], weight[2]
    else:  # OIHW, for depthwise CMHW
        kernel = (weight[2], weight[3])
        filters, inputs = weight[0], weight[1]
    if depthwise:
        filters = weight[0] * weight[1] if len(weight) == 4 and "nhwc" not in name else filters
        if "nhwc" in name:
            filters = weight[2] * weight[3]
        if len(weight) == 6:
            filters = weight[0] * weight[5]
        inputs = channels
    out = _spatial((height, width), kernel, *arguments[2:5])
    return _named(
        {
            "n": batch,
            "oc": filters,
            "ic": inputs,
            "oh": out[0],
            "ow": out[1],
            "kh": kernel[0],
            "kw": kernel[1],
        }
    )


def _transposed(
    arguments: Sequence[Any], image: tuple[int, int, int, int], weight: list[int]
) -> dict[str, int]:
    """``conv2d_transpose_nchw`` (data, kernel IOHW, strides, padding, dtype, output padding)."""
    batch, channels, height, width = image
    stride, kernel = _pair(arguments[2]), (weight[2], weight[3])
    padded = _padded((0, 0), kernel, arguments[3])
    if padded is None:
        raise ValueError("SAME is not defined here")
    extra = _pair(arguments[5]) if len(arguments) > 5 else (0, 0)
    sizes = (height, width)
    out = [
        (sizes[axis] - 1) * stride[axis] - padded[axis] + kernel[axis] + extra[axis]
        for axis in (0, 1)
    ]
    axes = {"n": batch, "oc": weight[1], "ic": channels, "oh": out[0], "ow": out[1]}
    return _named({**axes, "kh": kernel[0], "kw": kernel[1]})


def _winograd(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    """``conv2d_nchw_winograd.cuda``: a batch of alpha² products (filters, inputs) x (inputs, P).

    The tile size is 4 where the image's height is a multiple of 8, else 2
    (``topi/cuda/conv2d_winograd.py``, ``_infer_tile_size``).
    """
    if "nchw" not in name or "without_weight" in name:
        return {}
    data, weight = _shape(arguments[0]), _shape(arguments[1])
    batch, channels, height, width = _image(name, data)
    kernel = (weight[2], weight[3])
    if kernel[0] != kernel[1]:
        return {}
    out = _spatial((height, width), kernel, *arguments[2:5])
    tile = 4 if height % 8 == 0 else 2
    alpha = tile + kernel[0] - 1
    positions = batch * -(-out[0] // tile) * -(-out[1] // tile)
    return {
        "tile_b": alpha * alpha,
        "tile_y": weight[0],
        "tile_x": positions,
        "tile_rc": channels,
    }


def _tutorial_conv2d(arguments: Sequence[Any]) -> dict[str, int]:
    """The tutorial's (N, H, W, CO, CI, KH, KW, stride, padding)."""
    batch, height, width, filters, channels, kh, kw = (int(size) for size in arguments[:7])
    out = _spatial((height, width), (kh, kw), arguments[7], arguments[8], 1)
    axes = {"n": batch, "oc": filters, "ic": channels, "oh": out[0], "ow": out[1]}
    return _named({**axes, "kh": kh, "kw": kw})


def _batch_matmul(arguments: Sequence[Any]) -> dict[str, int]:
    """(x, y, out shape, dtype, transpose a, transpose b); y is transposed where it is not said."""
    x, y = _shape(arguments[0]), _shape(arguments[1])
    transposed_a = bool(arguments[4]) if len(arguments) > 4 else False
    transposed_b = bool(arguments[5]) if len(arguments) > 5 else True
    rows, inner = (x[2], x[1]) if transposed_a else (x[1], x[2])
    columns = y[1] if transposed_b else y[2]
    return {"tile_y": rows, "tile_x": columns, "tile_k": inner}


def _dense(name: str, arguments: Sequence[Any]) -> dict[str, int]:
    if arguments and type(arguments[0]) is int:  # the tutorial's matmul (N, L, M, dtype)
        rows, inner, columns = (int(size) for size in arguments[:3])
        return {"tile_y": rows, "tile_x": columns, "tile_k": inner}
    data, weight = _shape(arguments[0]), _shape(arguments[1])
    if len(data) != 2:
        return {}
    rows, inner = data
    if len(weight) == 3:  # packed: columns in two axes
        columns = weight[0] * weight[2]
    elif weight[1] == inner:
        columns = weight[0]
    elif weight[0] == inner:
        columns = weight[1]
    else:
        return {}
    if "batch" in name:  # dense_large_batch, dense_small_batch: x runs over the batch
        return {"tile_x": rows, "tile_y": columns, "tile_k": inner}
    return {"tile_y": rows, "tile_x": columns, "tile_k": inner, "tile_inner": rows}
