"""Layers as in networks: fused, channels last, with weights packed when the network is loaded.

TVM's own test workloads (``te_workload``) are single operators. In a compiled network, a matrix
product or convolution also has its bias and activation, and its weights have the layout that the
schedule wants (Relax's ``AttachAttrLayoutFreeBuffers`` sets the attribute ``layout_free_buffers``).
``erf`` and ``exp`` are the polynomials of Relax's ``FastMathTransform``.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import te, topi
from tvm.s_tir.meta_schedule.testing import te_workload

# Index of the argument with the weights.
WEIGHTS = 1

Activation = Callable[[te.Tensor], te.Tensor] | None


def _gelu(value: te.Tensor) -> te.Tensor:
    scaled = topi.multiply(value, tvm.tirx.const(0.7071067811865476, "float32"))
    half = topi.multiply(value, tvm.tirx.const(0.5, "float32"))
    return topi.multiply(half, topi.add(topi.fast_erf(scaled), tvm.tirx.const(1.0, "float32")))


def _relu6(value: te.Tensor) -> te.Tensor:
    return topi.clip(value, 0.0, 6.0)


def _layer(
    product: tuple[te.Tensor, te.Tensor, te.Tensor],
    activation: Activation = None,
    *,
    residual: bool = False,
) -> tvm.IRModule:
    """Return ``(data, weights, product)`` with a bias along the last axis and what follows it."""
    data, weight, result = product
    bias = te.placeholder((result.shape[-1],), name="bias")
    inputs, result = [data, weight, bias], topi.add(result, bias)
    if residual:
        inputs.append(te.placeholder(result.shape, name="other"))
        result = topi.add(result, inputs[-1])
    if activation is not None:
        result = activation(result)
    return _module([*inputs, result], weights=True)


def _module(tensors: list[te.Tensor], *, weights: bool = False) -> tvm.IRModule:
    """Return a module with ``main``; ``weights`` marks its weights as free to be laid out."""
    function = te.create_prim_func(tensors)
    if weights:
        function = function.with_attr("layout_free_buffers", [WEIGHTS])
    return tvm.IRModule({"main": function})


def _convolution(
    name: str, activation: Activation = None, *, residual: bool = False
) -> Callable[..., tvm.IRModule]:
    """Return a layer: convolution (NHWC, HWIO), bias, sum with another tensor, activation."""

    def layer(
        N: int, H: int, W: int, CI: int, CO: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> tvm.IRModule:
        tensors = te_workload.conv2d_nhwc(N, H, W, CI, CO, kernel, stride, padding)
        return _layer(tensors, activation, residual=residual)

    # Python's error about missing arguments shows this name.
    layer.__name__ = layer.__qualname__ = name
    return layer


def depthwise_bias_relu6(
    N: int, H: int, W: int, C: int, kernel: int, stride: int = 1, padding: int = 0
) -> tvm.IRModule:
    """Depthwise convolution (NHWC), bias, ReLU6."""
    return _layer(te_workload.depthwise_conv2d_nhwc(N, H, W, C, kernel, stride, padding), _relu6)


def dense_bias(M: int, N: int, K: int) -> tvm.IRModule:
    """Product with weights ``(K, N)``, bias."""
    return _layer(te_workload.matmul(M, N, K))


def dense_bias_gelu(M: int, N: int, K: int) -> tvm.IRModule:
    """Product with weights ``(K, N)``, bias, GELU by ``fast_erf``."""
    return _layer(te_workload.matmul(M, N, K), _gelu)


def softmax(*shape: int) -> tvm.IRModule:
    """Softmax over the last axis, by ``fast_exp``."""
    data = te.placeholder(shape, name="data")
    return _module([data, topi.nn.fast_softmax(data, axis=len(shape) - 1)])


def layer_norm(M: int, N: int) -> tvm.IRModule:
    """Layer norm over the last axis of ``(M, N)``."""
    data = te.placeholder((M, N), name="data")
    scale, shift = (te.placeholder((N,), name=name) for name in ("gamma", "beta"))
    normed = topi.nn.layer_norm(data, scale, shift, [1], 1e-5)
    return _module([data, scale, shift, normed])


def max_pool2d(
    N: int, H: int, W: int, C: int, kernel: int, stride: int = 1, padding: int = 0
) -> tvm.IRModule:
    """Maximum of each window (NHWC)."""
    data = te.placeholder((N, H, W, C), name="data")
    around = (padding,) * 4
    pooled = topi.nn.pool2d(
        data, (kernel,) * 2, (stride,) * 2, (1, 1), around, "max", layout="NHWC"
    )
    return _module([data, pooled])


def global_mean(N: int, H: int, W: int, C: int) -> tvm.IRModule:
    """Mean over height and width (NHWC)."""
    data = te.placeholder((N, H, W, C), name="data")
    total = topi.sum(data, axis=[1, 2], keepdims=True)
    mean = topi.multiply(total, tvm.tirx.const(1.0 / (H * W), "float32"))
    return _module([data, mean])


def add_relu(N: int, H: int, W: int, C: int) -> tvm.IRModule:
    """Sum of two tensors, ReLU."""
    one, other = (te.placeholder((N, H, W, C), name=name) for name in ("one", "other"))
    return _module([one, other, topi.nn.relu(topi.add(one, other))])


def add_gelu(M: int, N: int) -> tvm.IRModule:
    """Sum of two matrices, GELU by ``fast_erf``."""
    one, other = (te.placeholder((M, N), name=name) for name in ("one", "other"))
    return _module([one, other, _gelu(topi.add(one, other))])


def row_sum(M: int, N: int) -> tvm.IRModule:
    """Sum of squares of each row."""
    data = te.placeholder((M, N), name="data")
    return _module([data, topi.sum(topi.multiply(data, data), axis=1)])


def transpose(M: int, N: int, K: int) -> tvm.IRModule:
    """Swap the first two axes."""
    data = te.placeholder((M, N, K), name="data")
    return _module([data, topi.transpose(data, (1, 0, 2))])


LAYERS = {
    function.__name__: function
    for function in (
        _convolution("conv2d_bias"),
        _convolution("conv2d_bias_relu", topi.nn.relu),
        _convolution("conv2d_bias_relu6", _relu6),
        _convolution("conv2d_bias_add", residual=True),
        # The end of a residual block.
        _convolution("conv2d_bias_add_relu", topi.nn.relu, residual=True),
        depthwise_bias_relu6,
        dense_bias,
        dense_bias_gelu,
        softmax,
        layer_norm,
        max_pool2d,
        global_mean,
        add_relu,
        add_gelu,
        row_sum,
        transpose,
    )
}
"""Every layer by its name, as in ``--workload NAME:ARGUMENTS``."""
