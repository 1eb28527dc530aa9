"""Separates the storages of a network from the working memory of single threads."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import (
    dataflow_lower_passes,
    finalize_passes,
    legalize_passes,
    library_dispatch_passes,
)
from tvm.relax.expr_functor import PyExprMutator, mutator

from toolkit.networks.graph.functions import call_again, mutate, named

# Bytes left free after each storage. The processor's prefetch reads a few rows ahead. If the memory
# of another thread is there, its lines are removed from that thread's cache in every sweep: a
# product of 0.28 ms took 0.38 to 0.99 (Zen 4).
APART = 64 * 1024


@mutator
class _Apart(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> Any:
        """Make a storage larger by ``APART``."""
        if named(call) != "relax.memory.alloc_storage":
            return call
        size, *others = call.args
        (extent,) = size.values
        return call_again(call, [relax.ShapeExpr([extent + APART]), *others])


def network_pipeline(target: tvm.target.Target) -> tvm.transform.Sequential:
    """Return TVM's own pipeline for processors, with free bytes after each storage."""
    planned, lowered, *last = finalize_passes(target)
    apart = tvm.transform.module_pass(
        lambda module, _: mutate(module, lambda at, _: _Apart(at)), opt_level=0
    )
    return tvm.transform.Sequential(
        [
            *library_dispatch_passes(target),
            *legalize_passes(target),
            *dataflow_lower_passes(target),
            planned,
            lowered,
            apart,
            *last,
        ]
    )
