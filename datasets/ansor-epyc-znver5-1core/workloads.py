"""The workloads of the Ansor logs in this folder, for a TVM that has ``auto_scheduler``.

Give it to ``toolkit features --extractor ansor-per-store --workloads``.
"""

from tvm import auto_scheduler, te


@auto_scheduler.register_workload
def matmul(n, m, k):
    """C[n, m] = A[n, k] B[k, m], float32."""
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")
    return [a, b, c]


@auto_scheduler.register_workload
def batch_matmul(batch, n, m, k):
    """C[b, n, m] = A[b, n, k] B[b, k, m], float32."""
    a = te.placeholder((batch, n, k), name="A")
    b = te.placeholder((batch, k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (batch, n, m), lambda z, i, j: te.sum(a[z, i, r] * b[z, r, j], axis=[r]), name="C"
    )
    return [a, b, c]


@auto_scheduler.register_workload
def conv2d_nhwc(batch, height, width, ci, co, kernel, stride, padding):
    """Convolution of ``(batch, height, width, ci)`` with ``(kernel, kernel, ci, co)``, and ReLU."""
    data = te.placeholder((batch, height, width, ci), name="data")
    weight = te.placeholder((kernel, kernel, ci, co), name="weight")
    out_h = (height + 2 * padding - kernel) // stride + 1
    out_w = (width + 2 * padding - kernel) // stride + 1
    padded = te.compute(
        (batch, height + 2 * padding, width + 2 * padding, ci),
        lambda n, h, w, c: te.if_then_else(
            te.all(h >= padding, h < height + padding, w >= padding, w < width + padding),
            data[n, h - padding, w - padding, c],
            0.0,
        ),
        name="padded",
    )
    rh = te.reduce_axis((0, kernel), name="rh")
    rw = te.reduce_axis((0, kernel), name="rw")
    rc = te.reduce_axis((0, ci), name="rc")
    conv = te.compute(
        (batch, out_h, out_w, co),
        lambda n, h, w, f: te.sum(
            padded[n, h * stride + rh, w * stride + rw, rc] * weight[rh, rw, rc, f],
            axis=[rh, rw, rc],
        ),
        name="conv",
    )
    relu = te.compute(
        conv.shape,
        lambda n, h, w, f: te.max(conv[n, h, w, f], te.const(0.0, "float32")),
        name="relu",
    )
    return [data, weight, relu]
