"""Extractor ``knobs``: AutoTVM's knob values and what they mean for the operation's loops.

The templates of TVM's ``topi`` call their split knobs after axes. The names are translated to
loop roles (``operation.py``), so that a tile of output channels is the same column in every
template; a knob without a role keeps a column under its own name.
"""

from __future__ import annotations

import numpy as np

from toolkit.features.base import CandidateGroup, Floats
from toolkit.features.extractors.columns import ColumnsExtractor, common_columns
from toolkit.features.gpu.gpu import gpu_columns, grid_nest
from toolkit.features.loops.nest import Region, product
from toolkit.features.loops.parallel import parallel_columns, region_columns, share_columns
from toolkit.features.loops.tiling import Tiling, complete
from toolkit.features.task.autotvm_operation import autotvm_operation
from toolkit.features.task.hardware import cores_of, is_gpu
from toolkit.features.task.operation import Operation
from toolkit.records import Task

_CONV_ROLES = {
    **dict.fromkeys(("tile_f", "tile_oc", "tile_co"), "co"),
    **dict.fromkeys(("tile_oh", "tile_y"), "h"),
    **dict.fromkeys(("tile_ow", "tile_x"), "w"),
    **dict.fromkeys(("tile_ic", "tile_rc", "tile_ci"), "ci"),
    "tile_n": "n",
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
    """Loop role of a split knob, ``None`` where the name gives none."""
    if "large_batch" in template:
        return _LARGE_BATCH_ROLES.get(name)
    if operation.family in ("matmul", "batch_matmul"):
        return _MATRIX_ROLES.get(name)
    return _CONV_ROLES.get(name) if operation.family in ("conv", "depthwise") else None


class KnobsExtractor(ColumnsExtractor):
    """AutoTVM knobs → columns."""

    name = "knobs"
    version = 9

    def supports(self, task: Task) -> bool:
        """AutoTVM tasks."""
        return task.format == "autotvm"

    def columns(self, group: CandidateGroup) -> dict[str, Floats]:
        """Translate the knobs to tiles of the operation, and compute from these."""
        task = group.task
        tiling, tiles = knob_tiling(group)
        columns: dict[str, Floats] = {}
        for knob in group.sketch.knobs:
            parts = group.decisions[:, knob.offset : knob.offset + knob.width].T.astype(np.float64)
            if knob.name not in tiles or knob.kind != "tile":
                if knob.width == 1:
                    columns[f"knob_{knob.name}"] = parts[0]
                else:
                    inner = enumerate(parts[1:], 1)
                    columns.update({f"knob_{knob.name}_l{level}": part for level, part in inner})
            if knob.name == "auto_unroll_max_step":
                columns["unroll_step"] = parts[0]
            elif knob.name == "unroll_kw":
                kw = float(tiling.operation.extent("kw"))
                columns["unroll_body"] = np.where(parts[0] > 0, kw, 1.0)
        depth = tiling.factors.get("ci", ())
        if task.workload.startswith("batch_matmul.x86") and len(depth) > 1:
            # A short loop over the depth is unrolled, and sums may stay in registers; a longer one
            # remains a loop, and adds to memory each time.
            remains = np.isfinite(depth[0]) & (depth[0] > _MATMUL_UNROLLED)
            columns["unroll_body"] = np.where(remains, 1.0, depth[0])
        columns.update(common_columns(group, tiling))
        if tiling.gpu:
            columns.update(gpu_columns(grid_nest(tiling), tiling, columns, task))
        else:
            columns.update(_processor_columns(tiling, columns, cores_of(task)))
        return columns


def knob_tiling(group: CandidateGroup) -> tuple[Tiling, set[str]]:
    """Return the tiles that a group's knobs make, and the names of those knobs.

    A role that no knob tiles is one loop.
    """
    task, rows = group.task, len(group)
    operation = autotvm_operation(task)
    factors: dict[str, list[Floats]] = {}
    tiles: set[str] = set()
    packed: Floats | None = None
    row_split: Floats | None = None
    for knob in group.sketch.knobs:
        parts = list(group.decisions[:, knob.offset : knob.offset + knob.width].T.astype(float))
        if knob.kind != "tile":
            row_split = parts[0] if knob.name == "tile_oh" else row_split
            continue
        role = knob_role(operation, knob.name, task.workload)
        if role == "ci" and operation.family == "depthwise":
            packed = parts[-1]
        elif role is not None and role not in factors:
            factors[role] = complete(parts, operation.extents.get(role))
        else:
            continue
        tiles.add(knob.name)
    if row_split is not None and "h" not in factors:
        factors["h"] = complete([np.zeros(rows), row_split], operation.extents.get("h"))
    for role, extent in operation.extents.items():
        factors.setdefault(role, [np.full(rows, float(extent))])
    vector = "ci" if task.workload.startswith(_DEPTH_VECTORS) else "co"
    return Tiling(operation, factors, is_gpu(task), rows, vector, packed), tiles


def _processor_columns(tiling: Tiling, known: dict[str, Floats], cores: float) -> dict[str, Floats]:
    """Parallel loop of the x86 templates, what threads touch in it, and the loop body.

    TVM 0.8 ``topi/x86``: convolutions fuse batch, channel blocks and (blocks of) rows and go
    through a row's columns inside; matrix products fuse all blocks. A role that the template does
    not tile is one loop; for rows and images it is parallel.
    """
    matrix = tiling.operation.family in ("matmul", "batch_matmul")
    roles = ("n", "w", "co") if matrix else ("n", "co", "h")
    loops = [(role, tiling.factors[role][0]) for role in roles if role in tiling.factors]
    extent = product((length for _, length in loops), tiling.rows)
    return {
        **parallel_columns(extent, cores, known["flops"]),
        **share_columns(tiling, loops, extent, cores),
        **region_columns([Region(extent, known["op_points"] * known["op_depth"])], cores, None),
        "body_vectors": known["accumulators_128"] * known.get("unroll_body", 1.0),
    }
