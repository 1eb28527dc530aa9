"""Extractor ``primitives``: features of the loop nest, from Ansor steps and MetaSchedule traces.

Both are replayed without TVM (``ansor_nest.py``, ``trace_nest.py``); the tiles of the stage that
does the work get loop roles (``roles.py``) and with them footprints, reuse and grain
(``tiling.py``), in the same columns that AutoTVM's knobs fill.
"""

from __future__ import annotations

import numpy as np

from toolkit.features.base import CandidateGroup, Floats
from toolkit.features.extractors.columns import ColumnsExtractor, common_columns
from toolkit.features.gpu.gpu import gpu_columns
from toolkit.features.loops.ansor_nest import ansor_nest
from toolkit.features.loops.nest import Nest
from toolkit.features.loops.parallel import (
    parallel_columns,
    region_columns,
    share_columns,
    work_columns,
)
from toolkit.features.loops.roles import assign_roles
from toolkit.features.loops.tiling import Tiling
from toolkit.features.loops.trace_nest import trace_nest
from toolkit.features.task.hardware import cores_of, is_gpu, vector_registers
from toolkit.records import Task


class PrimitivesExtractor(ColumnsExtractor):
    """Ansor steps and MetaSchedule traces → columns."""

    name = "primitives"
    version = 12

    def supports(self, task: Task) -> bool:
        """Ansor and MetaSchedule tasks."""
        return task.format in ("ansor", "metaschedule")

    def columns(self, group: CandidateGroup) -> dict[str, Floats]:
        """Replay the schedule and compute from its loop nest."""
        task, nest = group.task, nest_of(group)
        operation, factors, roles = assign_roles(task, nest)
        tiling = Tiling(operation, factors, is_gpu(task), len(group))
        columns = common_columns(group, tiling)
        columns.update(_nest_columns(nest, columns))
        if tiling.gpu:
            columns.update(gpu_columns(nest, tiling, columns, task))
        elif nest.parallel is not None:
            cores = cores_of(task)
            columns.update(parallel_columns(nest.parallel, cores, columns["flops"]))
            columns.update(region_columns(nest.regions, cores, nest.least))
            if nest.work is not None:
                columns.update(work_columns(nest.work))
            if nest.sums is not None:
                columns.update(_kept_columns(*nest.sums, vector_registers(task)))
            loops = [(roles[knob], extent) for knob, extent in nest.fused if knob in roles]
            if loops:
                columns.update(share_columns(tiling, loops, nest.parallel, cores))
        return columns


def _kept_columns(sums: Floats, additions: Floats, registers: int) -> dict[str, Floats]:
    """Columns of sums in registers: shares of the registers, additions, stores for each addition.

    If the sums need more registers than there are, each addition is stored.
    """
    return {
        "kept_fill": sums / registers,
        "kept_additions": additions,
        "stores_per_step": np.where(sums <= registers, 1.0 / additions, 1.0),
    }


def nest_of(group: CandidateGroup) -> Nest:
    """Replay a group's steps or instructions."""
    return ansor_nest(group) if group.task.format == "ansor" else trace_nest(group)


def _nest_columns(nest: Nest, known: dict[str, Floats]) -> dict[str, Floats]:
    """Columns of the annotations: parallel grain, vector length, unrolling, attachment."""
    counts = {
        "n_axes": len(nest.axes),
        "n_inlined": nest.inlined,
        "n_cached": nest.cached,
        "n_kernels": len(nest.blocks),
    }
    result = {name: np.full(nest.rows, float(count)) for name, count in counts.items()}
    if nest.vector is not None:
        result["vector_extent"] = nest.vector
    if nest.unroll is not None:
        result["unroll_step"] = nest.unroll
        result["unroll_cover"] = nest.unroll / known["mid_volume"]
        result["unroll_cover_core"] = nest.unroll / known["core_volume"]
        # All that runs between two rounds of staging (GPU: of one thread).
        threads = nest.threads[0] if nest.threads else 1.0
        result["unroll_cover_stage"] = nest.unroll * threads / known["stage_volume"]
    for place, depth in enumerate(nest.located[:4]):
        result[f"location_{place}"] = depth
    for operand, length in zip(("data", "weight"), nest.fetch, strict=False):
        result[f"fetch_vector_{operand}"] = length
    return result
