"""Keeps what a network's functions share apart from what one thread works in."""

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

from toolkit.networks.graph.functions import mutate_functions

# Bytes left free behind each storage. A function's reads run a few rows ahead of themselves (the
# processor's prefetch); where the workspace of another thread lies there, its lines are pulled out
# of that thread's cache at every sweep: a product of 0.28 ms took 0.38 to 0.99 (Zen 4).
APART = 64 * 1024


@mutator
class _Apart(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> Any:
        if getattr(call.op, "name", None) != "relax.memory.alloc_storage":
            return call
        size, *others = call.args
        (extent,) = size.values
        return relax.Call(
            call.op, [relax.ShapeExpr([extent + APART]), *others], call.attrs, call.ty_args
        )


def keep_storage_apart(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    """Make each storage of a lowered module larger by ``APART``."""
    return mutate_functions(module, lambda at, _: _Apart(at))


def network_pipeline(target: tvm.target.Target) -> tvm.transform.Sequential:
    """TVM's own pipeline for processors, with storages that are kept apart."""
    planned, lowered, *last = finalize_passes(target)
    return tvm.transform.Sequential(
        [
            *library_dispatch_passes(target),
            *legalize_passes(target),
            *dataflow_lower_passes(target),
            planned,
            lowered,
            tvm.transform.module_pass(keep_storage_apart, opt_level=0),
            *last,
        ]
    )
