"""Extractor ``knobs``: AutoTVM's knob values and what they mean for the operation's loops.

The templates of TVM's ``topi`` call their split knobs after axes. The names are translated to
loop roles (``operation.py``), so that a tile of output channels is the same column in every
template; what has no role keeps a column under its own name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.extractors.generic import generic_columns
from toolkit.features.gpu.gpu import gpu_columns, grid_nest
from toolkit.features.loops.nest import Region
from toolkit.features.loops.parallel import parallel_columns, region_columns, share_columns
from toolkit.features.loops.tiling import Tiling, complete
from toolkit.features.task.autotvm_operation import autotvm_operation
from toolkit.features.task.hardware import cores_of, hardware_columns, is_gpu, vector_bytes
from toolkit.features.task.operation import Operation
from toolkit.records import Knob, Task

Floats = NDArray[np.float64]

_CONV_ROLES = {
    "tile_f": "co",
    "tile_oc": "co",
    "tile_co": "co",
    "tile_n": "n",
    "tile_oh": "h",
    "tile_y": "h",
    "tile_ow": "w",
    "tile_x": "w",
    "tile_ic": "ci",
    "tile_rc": "ci",
    "tile_ci": "ci",
    "tile_ry": "kh",
    "tile_rx": "kw",
}
_MATRIX_ROLES = {"tile_y": "w", "tile_x": "co", "tile_k": "ci", "tile_b": "n"}
_LARGE_BATCH_ROLES = {"tile_x": "w", "tile_y": "co", "tile_k": "ci"}  # topi/cuda/dense.py

_DEPTH_VECTORS = ("dense_nopack", "batch_matmul.x86")
"""Templates whose lanes lie along the innermost factor of the depth (topi/x86, TVM 0.6 to 0.16)."""

_MATMUL_UNROLLED = 16
"""``auto_unroll_max_step`` of ``batch_matmul.x86`` (topi/x86/batch_matmul.py, TVM 0.7 to 0.16)."""


def knob_role(operation: Operation, name: str, template: str = "") -> str | None:
    """Loop role of a split knob, ``None`` where the name tells none."""
    if "large_batch" in template:
        return _LARGE_BATCH_ROLES.get(name)
    if operation.family in ("matmul", "batch_matmul"):
        return _MATRIX_ROLES.get(name)
    if operation.family in ("conv", "depthwise"):
        role = _CONV_ROLES.get(name)
        # A depthwise template splits its channels under either name.
        return "co" if operation.family == "depthwise" and role == "co" else role
    return None


class KnobsExtractor:
    """AutoTVM knobs → columns."""

    name = "knobs"
    version = 9

    def supports(self, task: Task) -> bool:
        """AutoTVM tasks."""
        return task.format == "autotvm"

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Compute all columns of a group; what follows from an unknown extent is absent."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self._extract(group)

    def _extract(self, group: CandidateGroup) -> FeatureBlock:
        task, rows = group.task, len(group)
        operation = autotvm_operation(task)
        columns: dict[str, Floats] = {}
        factors: dict[str, list[Floats]] = {}
        packed: Floats | None = None
        for knob in group.sketch.knobs:
            parts = group.decisions[:, knob.offset : knob.offset + knob.width].astype(np.float64)
            role = knob_role(operation, knob.name, task.workload) if knob.kind == "tile" else None
            if role == "ci" and operation.family == "depthwise":
                packed = parts[:, -1]
            elif role is not None and role not in factors:
                levels = [parts[:, level] for level in range(knob.width)]
                factors[role] = complete(levels, operation.extents.get(role))
            else:
                columns.update(_own_columns(knob, parts))
        _template_columns(group, operation, factors, columns)
        if task.workload.startswith("batch_matmul.x86") and len(factors.get("ci", ())) > 1:
            columns["unroll_body"] = _unrolled_depth(factors["ci"][0])
        for role, extent in operation.extents.items():
            factors.setdefault(role, [np.full(rows, float(extent))])
        vector = "ci" if task.workload.startswith(_DEPTH_VECTORS) else "co"
        tiling = Tiling(operation, factors, is_gpu(task), rows, vector, packed)
        columns.update(generic_columns(group))
        for name, value in {**operation.columns(), **hardware_columns(task)}.items():
            columns[name] = np.full(rows, value)
        columns.update(tiling.columns(vector_bytes(task)))
        if tiling.gpu:
            columns.update(gpu_columns(grid_nest(tiling), tiling, columns, task))
        else:
            columns.update(_processor_columns(tiling, columns, cores_of(task)))
        return FeatureBlock.of(columns, rows)


def _processor_columns(tiling: Tiling, known: dict[str, Floats], cores: float) -> dict[str, Floats]:
    """Parallel loop of the x86 templates, what threads touch in it, and the loop body.

    TVM 0.8 ``topi/x86``: convolutions fuse batch, channel blocks and (blocks of) rows and go
    through a row's columns inside; matrix products fuse all blocks.
    """
    rows = tiling.rows
    matrix = tiling.operation.family in ("matmul", "batch_matmul")
    loops = []
    for role in ("n", "w", "co") if matrix else ("n", "co", "h"):
        levels = tiling.factors.get(role)
        if levels:
            # A role that the template does not tile is one loop: of rows and images a parallel one.
            loops.append((role, levels[0]))
    extent = np.prod(np.stack([np.ones(rows), *(length for _, length in loops)]), axis=0)
    work = known["op_points"] * known["op_depth"]
    return {
        **parallel_columns(extent, cores, known["flops"]),
        **share_columns(tiling, loops, extent, cores),
        **region_columns([Region(extent, work)], cores, None),
        "body_vectors": known["accumulators_128"] * known.get("unroll_body", np.ones(rows)),
    }


def _unrolled_depth(steps: Floats) -> Floats:
    """Copies of the loop body: a short loop over the depth is unrolled, a longer one remains.

    Over the steps of the former, sums may stay in registers; the latter adds to memory each time.
    """
    return np.where(np.isfinite(steps) & (steps > _MATMUL_UNROLLED), 1.0, steps)


def _own_columns(knob: Knob, parts: Floats) -> dict[str, Floats]:
    if knob.width == 1:
        return {f"knob_{knob.name}": parts[:, 0]}
    return {f"knob_{knob.name}_l{level}": parts[:, level] for level in range(1, knob.width)}


def _template_columns(
    group: CandidateGroup,
    operation: Operation,
    factors: dict[str, list[Floats]],
    columns: dict[str, Floats],
) -> None:
    """Columns of knobs whose meaning is known by their name: unrolling and row splits."""
    for knob in group.sketch.knobs:
        values = group.decisions[:, knob.offset].astype(np.float64)
        if knob.name == "auto_unroll_max_step":
            columns["unroll_step"] = values
        elif knob.name == "unroll_kw":
            columns["unroll_body"] = np.where(values > 0, float(operation.extent("kw")), 1.0)
        elif knob.name == "tile_oh" and knob.kind != "tile":
            extent = operation.extents.get("h")
            factors.setdefault("h", complete([np.zeros(len(group)), values], extent))
