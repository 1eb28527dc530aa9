"""Extractor ``primitives``: what Ansor steps and MetaSchedule traces say of the loop nest.

Both are replayed without TVM (``ansor_nest.py``, ``trace_nest.py``); the tiles of the stage that
does the work get loop roles (``roles.py``) and with them footprints, reuse and grain
(``tiling.py``), in the same columns that AutoTVM's knobs fill.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.extractors.generic import generic_columns
from toolkit.features.gpu.gpu import gpu_columns
from toolkit.features.loops.ansor_nest import ansor_nest
from toolkit.features.loops.nest import Axis, Nest
from toolkit.features.loops.parallel import parallel_columns, region_columns, share_columns
from toolkit.features.loops.roles import infer_operation
from toolkit.features.loops.tiling import Tiling
from toolkit.features.loops.trace_nest import trace_nest, workload_blocks
from toolkit.features.task.hardware import cores_of, hardware_columns, is_gpu, vector_bytes
from toolkit.features.task.operation import Operation, dtype_bytes
from toolkit.records import Task

Floats = NDArray[np.float64]


class PrimitivesExtractor:
    """Ansor steps and MetaSchedule traces → columns."""

    name = "primitives"
    version = 9

    def supports(self, task: Task) -> bool:
        """Ansor and MetaSchedule tasks."""
        return task.format in ("ansor", "metaschedule")

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Compute all columns of a group; what follows from an unknown extent is absent."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self._extract(group)

    def _extract(self, group: CandidateGroup) -> FeatureBlock:
        task, rows = group.task, len(group)
        nest = nest_of(group)
        operation, factors, roles = assign_roles(task, nest)
        gpu = is_gpu(task)
        tiling = Tiling(operation, factors, gpu, rows)
        columns: dict[str, Floats] = {}
        for name, value in {**operation.columns(), **hardware_columns(task)}.items():
            columns[name] = np.full(rows, value)
        columns.update(generic_columns(group))
        columns.update(tiling.columns(vector_bytes(task)))
        columns.update(_nest_columns(nest, columns))
        if gpu:
            columns.update(gpu_columns(nest, tiling, columns, task))
        elif nest.parallel is not None:
            cores = cores_of(task)
            columns.update(parallel_columns(nest.parallel, cores, columns["flops"]))
            columns.update(region_columns(nest.regions, cores, nest.least))
            loops = [(roles[knob], extent) for knob, extent in nest.fused if knob in roles]
            if loops:
                columns.update(share_columns(tiling, loops, nest.parallel, cores))
        return FeatureBlock.of(columns, rows)


def split_axes(axes: list[Axis]) -> tuple[list[Axis], list[Axis]]:
    """Part a stage's axes into spatial and reduction ones.

    Multi-level tiling gives spatial loops more levels than reductions (``SSRSRS``: 4 and 2;
    ``SSSRRSRS``: 5 and 3); where all have as many, all are spatial that are not known to reduce.
    """
    deepest = max((len(axis.levels) for axis in axes), default=0)
    spatial = [axis for axis in axes if len(axis.levels) == deepest and not axis.reduces]
    return spatial, [axis for axis in axes if len(axis.levels) != deepest or axis.reduces]


def nest_of(group: CandidateGroup) -> Nest:
    """Replay a group's steps or instructions."""
    return ansor_nest(group) if group.task.format == "ansor" else trace_nest(group)


def assign_roles(
    task: Task, nest: Nest
) -> tuple[Operation, dict[str, list[Floats]], dict[str, str]]:
    """Find the operation, the tile factors by role, and the role of each knob that splits one.

    Factors of axes that share a role are multiplied.
    """
    spatial, reduction = split_axes(nest.axes)
    extents = [axis.extent for axis in spatial]
    if not extents and task.format == "metaschedule" and workload_blocks(task):
        return _untiled(task), {}, {}
    label = nest.label
    if task.format == "metaschedule" and not any(word in label for word in ("conv", "pool")):
        label = f"{label} {' '.join(block.name for block in workload_blocks(task)[:1])}"
    operation, s_roles, r_roles = infer_operation(
        extents, [axis.extent for axis in reduction], label, _element_bytes(task)
    )
    if task.format == "ansor" and operation.family == "elementwise" and nest.unroll is not None:
        # Ansor gives a limit of unrolling to stages that reduce, and to them alone (TVM
        # ``sketch_policy_rules.cc``, ``InitUnroll``), also where no step names what is added up.
        operation = replace(operation, family="reduction")
    stride = _stride(task, operation)
    operation = replace(operation, stride=(stride, stride))
    factors: dict[str, list[Floats]] = {}
    knob_roles: dict[str, str] = {}
    for role, axis in zip([*s_roles, *r_roles], [*spatial, *reduction], strict=True):
        knob_roles[axis.knob] = role
        if role in factors:
            old = factors[role]
            factors[role] = [a * b for a, b in zip(old, axis.levels, strict=True)]
        else:
            factors[role] = axis.levels
    return operation, factors, knob_roles


def _untiled(task: Task) -> Operation:
    """Return the operation of a workload whose sketch tiles no loop: its largest block's.

    Products and convolutions are always tiled: what adds up here, a window aside, is a reduction of
    its last axes (softmax, norms, means).
    """
    block = max(workload_blocks(task), key=lambda block: block.volume)
    pairs = list(zip(block.extents, block.reductions, strict=True))
    spatial = [float(max(extent, 1)) for extent, reduces in pairs if not reduces]
    reduction = [float(max(extent, 1)) for extent, reduces in pairs if reduces]
    operation = infer_operation(spatial, reduction, block.name, _element_bytes(task))[0]
    if not reduction or operation.family == "pool":
        return operation
    rows, depth = (max(1, round(float(np.prod(sizes)))) for sizes in (spatial, reduction))
    return replace(operation, family="reduction", extents={"w": rows, "ci": depth})


def _element_bytes(task: Task) -> float:
    """Bytes of an element, from MetaSchedule's ``["TENSOR", dtype, shape]``; else 4."""
    arguments = task.arguments if isinstance(task.arguments, list) else []
    for argument in arguments:
        if isinstance(argument, list) and len(argument) == 3 and argument[0] == "TENSOR":
            return dtype_bytes(argument[1])
    return 4.0


def _stride(task: Task, operation: Operation) -> int:
    """Stride of a convolution: what the arguments' image extents are beside the output's.

    Arguments hold the input's height and width one after the other (a shape, or plain numbers);
    the first such pair that some stride from 1 to 4 explains, padding aside, tells it.
    """
    h, w = operation.extent("h"), operation.extent("w")
    kernel = operation.extent("kh")
    if h * w <= 1:
        return 1
    for height, width in itertools.pairwise(_integers(task.arguments)):
        for stride in (1, 2, 3, 4):
            slack = (height - h * stride, width - w * stride)
            if all(-stride < s <= kernel + stride for s in slack):
                return stride
    return 1


def _integers(value: object) -> list[int]:
    """All integers of nested lists, in order."""
    if type(value) is int:
        return [value]
    if isinstance(value, list):
        return [number for item in value for number in _integers(item)]
    return []


def _nest_columns(nest: Nest, known: dict[str, Floats]) -> dict[str, Floats]:
    """Columns of the annotations: parallel grain, vector length, unrolling, attachment."""
    rows = nest.rows
    result = {
        "n_axes": np.full(rows, float(len(nest.axes))),
        "n_inlined": np.full(rows, float(nest.inlined)),
        "n_cached": np.full(rows, float(nest.cached)),
        "n_kernels": np.full(rows, float(len(nest.blocks))),
    }
    if nest.vector is not None:
        result["vector_extent"] = nest.vector
    if nest.unroll is not None:
        result["unroll_step"] = nest.unroll
        result["unroll_cover"] = nest.unroll / known["mid_volume"]
        result["unroll_cover_core"] = nest.unroll / known["core_volume"]
        # All that runs between two rounds of staging (GPU: of one thread).
        body = known["stage_volume"]
        result["unroll_cover_stage"] = (
            nest.unroll * nest.threads[0] / body if nest.threads else nest.unroll / body
        )
    for place, depth in enumerate(nest.located[:4]):
        result[f"location_{place}"] = depth
    for operand, length in zip(("data", "weight"), nest.fetch, strict=False):
        result[f"fetch_vector_{operand}"] = length
    return result
