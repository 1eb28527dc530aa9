"""Prepares a network's graph: folds constants, chooses a layout, fuses and packs.

The passes are TVM's (``static_shape_tuning_pipeline`` of ``relax/pipeline.py``, TVM 0.27). In
addition batch norms are folded, a layout is chosen, and ``erf``, ``exp`` and ``tanh`` become
polynomials (``FastMathTransform``): a library call per element would cost more than the products
around it. Outputs differ by about 1e-6 of their range. If a larger error is allowed, some
convolutions use Winograd's algorithm (``winograd``). If a graph goes through any pass again, its
tasks have other hashes and no record fits: the tuned graph is the compiled graph.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import tvm
from tvm import relax

from toolkit.errors import LiveError
from toolkit.live.measure.machine import tvm_target
from toolkit.live.space.quiet import quiet
from toolkit.networks.graph.channels import lanes_of, pad_channels
from toolkit.networks.graph.concatenation import (
    concatenate_by_copies,
    convolve_before_concatenation,
    splits_as_slices,
)
from toolkit.networks.graph.constants import fold_constants, fold_rest
from toolkit.networks.graph.expansions import with_expansions
from toolkit.networks.graph.functions import named, nodes_of
from toolkit.networks.graph.padding import pad_rows
from toolkit.networks.graph.relax_rewrites import (
    activations,
    batch_norms,
    clips_and_roots,
    clips_as_relus,
    large_means,
    slices,
    transposed_convolutions,
)
from toolkit.networks.graph.reshapes import move_reshapes
from toolkit.networks.graph.transposes import join_transposes
from toolkit.networks.graph.winograd import with_winograd

Layout = Literal["auto", "NCHW", "NHWC"]

NHWC = {
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv2d_transpose": ["NHWC", "IOHW"],
    "relax.nn.conv3d": ["NDHWC", "DHWIO"],
    "relax.nn.conv3d_transpose": ["NDHWC", "IODHW"],
}

TRANSPOSES = 0.25
"""NHWC is taken if it adds at most this many transposes per convolution, and four more."""

CACHE_BYTES = 24 * 2**20
"""Weights of smaller networks are still in the last cache when the network runs again."""


@dataclass(frozen=True)
class Graph:
    """A network as it is tuned and compiled.

    ``module`` has a Relax ``main`` that calls fused functions. Its weights are constants with a
    free layout, ``weight_bytes`` in total. ``layout`` is the layout of its convolutions.
    ``tolerance`` is the allowed error of its outputs, as a share of their range.
    """

    name: str
    module: tvm.IRModule
    layout: str
    weight_bytes: int
    tolerance: float = 0.0


def prepare(
    module: tvm.IRModule, target: str, name: str, layout: Layout = "auto", tolerance: float = 0.0
) -> Graph:
    """Turn an imported network into the graph that is tuned and compiled.

    ``tolerance`` is the allowed error of the outputs, as a share of their range. 1e-5 allows
    Winograd's convolutions of one size, 1e-4 of two; they round differently.

    Raises
    ------
    LiveError
        When TVM cannot lower the network, or cannot convert it to the requested layout.
    """
    made = tvm_target(target)
    t = relax.transform
    try:
        with made, quiet():  # legalizing a gather prints remarks about bounds
            plain = fold_rest(fold_constants(module))
            plain = t.DecomposeOpsForInference()(t.FoldBatchnormToConv2D()(plain))
            plain = fold_constants(splits_as_slices(slices(plain)))
            plain = convolve_before_concatenation(plain)
            plain = _joined(clips_as_relus(batch_norms(plain)))
            chosen, plain = _laid_out(plain, layout)
            plain = pad_rows(move_reshapes(clips_and_roots(plain)))
            plain = pad_channels(plain, lanes_of(made))
            if tolerance > 0:
                plain = with_winograd(plain, tolerance, _constant_bytes(plain) <= CACHE_BYTES)
            plain = with_expansions(plain, lanes_of(made))
            plain = activations(concatenate_by_copies(large_means(plain)))
            plain = fold_rest(t.CanonicalizeBindings()(plain))
            passes = [
                t.FastMathTransform(), t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FoldConstant(),
                t.FuseOps(), t.FuseTIR(), t.AttachAttrLayoutFreeBuffers(),
            ]  # fmt: skip
            lowered = tvm.transform.Sequential(passes)(plain)
    except LiveError:
        raise
    except Exception as error:  # TVM's errors have no common type
        raise LiveError(
            f"TVM cannot lower the network {name!r}: {said(error)[:200]}",
            cure="all shapes must be known: bind dynamic ones (relax.transform.BindSymbolicVars)",
        ) from None
    return Graph(name, lowered, chosen, _constant_bytes(lowered), tolerance)


def _laid_out(module: tvm.IRModule, layout: Layout) -> tuple[str, tvm.IRModule]:
    """Convert to channels last if the convolutions gain by it: if few transposes remain."""
    before = operators(module)
    convolutions = sum(before[name] for name in NHWC)
    kept = transposed_convolutions(module) if convolutions else module
    if layout == "NCHW" or not convolutions:
        return "NCHW", kept
    try:
        converted = relax.transform.ConvertLayout(NHWC)(module)
        # The weights have transposes now.
        converted = _joined(fold_constants(transposed_convolutions(converted)))
    except Exception as error:  # an internal error of TVM
        if layout == "NHWC":
            raise LiveError(
                f"TVM cannot convert the layout: {said(error)[:200]}", cure="give --layout NCHW"
            ) from None
        return "NCHW", kept
    added = operators(converted)["relax.permute_dims"] - before["relax.permute_dims"]
    added -= 2 * sum(before[name] for name in NHWC if name.endswith("_transpose"))
    if layout == "NHWC" or added <= 4 + TRANSPOSES * convolutions:
        return "NHWC", converted
    return "NCHW", kept


def _joined(module: tvm.IRModule) -> tvm.IRModule:
    joined = relax.transform.EliminateCommonSubexpr()(join_transposes(module))
    kept, left = (operators(one)["relax.permute_dims"] for one in (module, joined))
    return joined if left <= kept else module  # a transpose with several users stays for the others


def operators(module: tvm.IRModule) -> Counter[str]:
    """Count the operators that a module's Relax functions call, by name."""
    return Counter(name for node in nodes_of(module) if (name := named(node)))


def _constant_bytes(module: tvm.IRModule) -> int:
    constants = (one for one in nodes_of(module) if isinstance(one, tvm.ir.expr.GenericConst))
    return sum(int(one.value.numpy().nbytes) for one in constants)


def said(error: Exception) -> str:
    """Return the most useful line of a TVM error: the last one that is not a remark."""
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("#")]
    return lines[-1].strip() if lines else type(error).__name__
