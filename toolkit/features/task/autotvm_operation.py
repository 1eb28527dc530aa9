"""AutoTVM task arguments → the operation (TVM 0.8 to 0.16, ``topi`` task registrations)."""

from __future__ import annotations

from typing import Any

from toolkit.features.task.operation import Operation, dtype_bytes
from toolkit.records import Task

_ELSE_LAID_OUT = ("conv3d", "deformable", "hwcn", "hwnc", "without_weight_transform")
"""Parts of convolutions' names whose tensors have other axes, or another order of axes."""


def autotvm_operation(task: Task) -> Operation:
    """Read an AutoTVM task's name and arguments; an unknown one has family ``other``."""
    name = task.workload.split("/")[0]
    arguments = task.arguments if isinstance(task.arguments, list) else []
    tensors = [argument for argument in arguments if _is_tensor(argument)]
    size = dtype_bytes(tensors[0][2]) if tensors else 4.0
    if len(tensors) >= 2 and not any(part in name.lower() for part in _ELSE_LAID_OUT):
        data, weight = tensors[0][1], tensors[1][1]
        if "conv" in name and len(data) >= 3 and len(weight) >= 3:
            return _convolution(name, arguments[2:], data, weight, size)
        if "batch_matmul" in name and len(data) == 3 and len(weight) == 3:
            columns = weight[1] if data[2] == weight[2] else weight[2]
            extents = {"n": data[0], "w": data[1], "co": columns, "ci": data[2]}
            return Operation("batch_matmul", extents, element_bytes=size)
        if ("dense" in name or "matmul" in name) and len(data) == 2 and len(weight) >= 2:
            columns = weight[0] if data[1] == weight[1] else weight[-1]
            if len(weight) == 3:  # packed (columns / block, depth, block)
                columns = weight[0] * weight[2]
            extents = {"w": data[0], "co": columns, "ci": data[1]}
            return Operation("matmul", extents, element_bytes=size)
    return Operation("other", element_bytes=size)


def _convolution(
    name: str, rest: list[Any], data: list[int], weight: list[int], size: float
) -> Operation:
    """Read a convolution: tensors, and in ``rest`` stride, padding, dilation, layouts."""
    stride = _pair(rest[0]) if rest else (1, 1)
    padding = rest[1] if len(rest) > 1 else 0
    dilation = _pair(rest[2]) if len(rest) > 2 else (1, 1)
    channels_last = "nhwc" in name.lower() or "NHWC" in rest or "NWC" in rest
    flat = len(data) == 3
    if flat:
        data = [data[0], 1, *data[1:]] if channels_last else [data[0], data[1], 1, data[2]]
        weight = [1, *weight] if channels_last else [*weight[:2], 1, weight[2]]
        padding = padding if isinstance(padding, str) else [0, _pair(padding)[1]]
        stride = (1, stride[1])
    if len(data) == 5 and len(weight) >= 4:  # NCHWc: channels in blocks
        data = [data[0], data[1] * data[4], data[2], data[3]]
        if len(weight) == 6:
            weight = [weight[0] * weight[5], weight[1] * weight[4], weight[2], weight[3]]
    if len(data) != 4 or len(weight) < 4 or min(stride) < 1:
        return Operation("other", element_bytes=size)
    if channels_last:
        n, rows, columns, channels = data
        kh, kw, ci, co = weight[:4]
    else:
        n, channels, rows, columns = data
        co, ci, kh, kw = weight[:4]
    depthwise = "depthwise" in name
    if depthwise:
        co, ci = channels * max(co if channels_last else ci, 1), 1
    if "transpose" in name:
        # The input is spread out, and convolved with stride 1 (topi; the kernel is IOHW).
        if channels_last or "group" in name or padding == "SAME" or weight[0] != channels:
            return Operation("other", element_bytes=size)
        ci, co = weight[:2]
        extra = _pair(rest[3]) if len(rest) > 3 else (0, 0)
        h = (rows - 1) * stride[0] - _padded(padding, 0) + kh + (0 if flat else extra[0])
        w = (columns - 1) * stride[1] - _padded(padding, 1) + kw + extra[1]
        h, w, stride, dilation = max(1, h), max(1, w), (1, 1), (1, 1)
    else:
        h = _output(rows, kh, stride[0], dilation[0], padding, 0)
        w = _output(columns, kw, stride[1], dilation[1], padding, 1)
    extents = {"n": n, "co": co, "h": h, "w": w, "ci": ci, "kh": kh, "kw": kw}
    return Operation("depthwise" if depthwise else "conv", extents, stride, dilation, size)


def _output(size: int, kernel: int, stride: int, dilation: int, padding: Any, axis: int) -> int:
    """Output extent of a convolution along one axis."""
    if padding == "SAME":
        return -(-size // stride)
    padded = size + _padded(padding, axis)
    return max(1, (padded - (kernel - 1) * dilation - 1) // stride + 1)


def _padded(padding: Any, axis: int) -> int:
    """Total padding along one axis, both sides together."""
    if isinstance(padding, str):
        return 0
    if isinstance(padding, int):
        return 2 * padding
    if isinstance(padding, list) and len(padding) == 4:  # top, left, bottom, right
        return int(padding[axis] + padding[axis + 2])
    return 2 * _pair(padding)[axis]


def _pair(value: Any) -> tuple[int, int]:
    numbers = [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int)]
    return (numbers[0], numbers[:2][-1]) if numbers else (1, 1)


def _is_tensor(argument: Any) -> bool:
    """Whether an argument is ``["TENSOR", shape, dtype]`` with a shape that is known."""
    return (
        isinstance(argument, list)
        and len(argument) >= 3
        and argument[0] == "TENSOR"
        and isinstance(argument[1], list)
        and len(argument[1]) > 0
        and all(type(extent) is int and extent > 0 for extent in argument[1])
    )
