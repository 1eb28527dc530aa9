"""Log lines of every format, made here: nothing in the tests is cut from anybody's log."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

CPU = "llvm -keys=cpu -mcpu=core-avx2"
GPU = "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 -thread_warp_size=32"


def dense_arguments(rows: int = 64, columns: int = 96, inner: int = 32) -> list[Any]:
    """Arguments of ``dense_nopack.x86``."""
    return [
        ["TENSOR", [rows, inner], "float32"],
        ["TENSOR", [columns, inner], "float32"],
        None,
        "float32",
    ]


def autotvm(
    index: int = 7,
    tiles: tuple[int, int, int] = (4, 8, 2),
    costs: Any = (1.5e-5, 1.7e-5),
    error: Any = 0,
    elapsed: Any = 0.8,
    timestamp: Any = 1.7e9,
    *,
    target: str = CPU,
    arguments: list[Any] | None = None,
    extra: list[Any] | None = None,
) -> dict[str, Any]:
    """An AutoTVM 0.2 record of a dense layer."""
    entity = [
        ["tile_y", "sp", [-1, tiles[0]]],
        ["tile_x", "sp", [-1, tiles[1]]],
        ["tile_k", "sp", [-1, tiles[2]]],
        *(extra or []),
    ]
    inputs = [target, "dense_nopack.x86", arguments or dense_arguments(), {}]
    return {
        "input": inputs,
        "config": {"index": index, "code_hash": None, "entity": entity},
        "result": [list(costs), error, elapsed, timestamp],
        "version": 0.2,
        "tvm_version": "0.12.0",
    }


def dense(count: int) -> list[dict[str, Any]]:
    """Records of one dense layer, as many as ``count``, each slower than the one before."""
    tiles = range(1, count + 1)
    return [autotvm(index=n - 1, tiles=(n, 1, 1), costs=[1e-5 * n]) for n in tiles]


def autotvm_old(
    index: int = 3, tile: tuple[int, ...] = (2, 4, 8), error: int = 0, template: str = ""
) -> dict[str, Any]:
    """An AutoTVM 0.1 record, with array keys i, r, v."""
    arguments = [1, 14, 14, 64, 32, 3, 3, [1, 1], [1, 1]]
    entity = [["tile_f", "sp", list(tile)], ["auto_unroll_max_step", "ot", 512]]
    config = {"i": index, "t": template, "c": None, "e": entity}
    costs = [1e9] if error else [0.002, 0.003]
    workload = ["conv2d_no_batching", *arguments]
    return {
        "i": ["cuda", "conv2d_no_batching", arguments, {}, workload, config],
        "r": [costs, error, 2.5, 1544130102.5],
        "v": 0.1,
    }


def ansor_steps(
    rows: int = 64, columns: int = 96, tile: tuple[int, int, int] = (2, 1, 4), unroll: int = 16,
    fused: int = 2,
) -> list[Any]:  # fmt: skip
    """Steps of a CPU schedule of a matrix product, as Ansor writes them."""
    return [
        ["SP", 2, 0, rows, list(tile), 1],
        ["SP", 2, 4, columns, [1, 2, 8], 1],
        ["SP", 2, 8, 32, [4], 1],
        ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
        ["FSP", 4, 0, 0, 2],
        ["FSP", 4, 3, 1, 2],
        ["RE", 4, [0, 3, 1, 4, 2, 5]],
        ["CA", 2, 4, 3],
        ["FU", 4, list(range(fused))],
        ["AN", 4, 0, 3],
        ["PR", 2, 0, f"auto_unroll_max_step${unroll}"],
        ["AN", 2, 9, 2],
        ["AN", 4, 6 - fused, 2],
    ]


def ansor(
    steps: list[Any] | None = None,
    costs: Any = (0.0044742,),
    error: Any = 0,
    elapsed: Any = 0.33,
    timestamp: Any = 1607112214,
    *,
    version: str = "v0.6",
    key: str = '["matmul_add", 64, 96, 32, "float32"]',
    target: str = CPU,
) -> dict[str, Any]:
    """An Ansor record; the task's items follow the version."""
    task: list[Any] = [key, target]
    if version >= "v0.3":
        task.append([8, 64, 64, 0, 0, 0, 0, 0])
    if version >= "v0.5":
        task += ["", 1]
    if version >= "v0.6":
        task.append([])
    result = [list(costs), error, elapsed, timestamp]
    return {"i": [task, [[], ansor_steps() if steps is None else steps]], "r": result, "v": version}


TARGET: dict[str, Any] = {"keys": ["cpu"], "kind": "llvm", "num-cores": 4, "tag": ""}
TENSORS = [["TENSOR", "float32", [64, 64]], ["TENSOR", "float32", [64, 64]]]


def trace(
    tile: tuple[int, ...] = (8, 4, 2), unroll: int = 1, location: int = -1, parallel: int = 64
) -> list[Any]:
    """A MetaSchedule trace with every kind of decision and a postprocessor's instructions."""
    instructions = [
        ["GetBlock", [], ["matmul", "main"], ["b0"]],
        ["GetBlock", [], ["root", "main"], ["b1"]],
        ["GetLoops", ["b0"], [], ["l2", "l3", "l4"]],
        ["SamplePerfectTile", ["l2"], [3, 64], ["v5", "v6", "v7"]],
        ["Split", ["l2", "v5", "v6", "v7"], [1], ["l8", "l9", "l10"]],
        ["Annotate", ["b1", parallel], ["meta_schedule.parallel"], []],
        ["Annotate", ["b1", 32], ["meta_schedule.vectorize"], []],
        ["SampleCategorical", [], [[0, 16, 64, 512], [0.25, 0.25, 0.25, 0.25]], ["v11"]],
        ["Annotate", ["b1", "v11"], ["meta_schedule.unroll_explicit"], []],
        ["SampleComputeLocation", ["b0"], [], ["l12"]],
        ["ComputeAt", ["b0", "l12"], [1, -1], []],
        ["EnterPostproc", [], [], []],
        ["Unannotate", ["b1"], ["meta_schedule.parallel"], []],
    ]
    return [instructions, [[3, list(tile)], [7, unroll], [9, location]]]


def metaschedule(
    which: int = 0, schedule: list[Any] | None = None, costs: Any = (2.5e-5, 2.75e-5)
) -> list[Any]:
    """A MetaSchedule tuning record."""
    costs = list(costs) if isinstance(costs, tuple) else costs
    return [which, [trace() if schedule is None else schedule, costs, TARGET, TENSORS]]


def workload(digest: str = "1234567890", extent: int = 64, *, new: bool = False) -> list[Any]:
    """A MetaSchedule workload line in the old graph layout (TVM 0.18) or the new one (0.23)."""
    graph = _new_graph(extent) if new else _old_graph(extent)
    text = json.dumps(graph).encode()
    blob = len(text).to_bytes(8, "little") + text
    return [digest, base64.b64encode(blob).decode()]


def _old_graph(extent: int) -> dict[str, Any]:
    def node(key: str, **attrs: str) -> dict[str, Any]:
        return {"type_key": key, "attrs": attrs}

    nodes: list[dict[str, Any]] = [
        {"type_key": ""},
        node("IRModule", functions="2"),
        {"type_key": "Map", "data": [3, 5]},
        node("GlobalVar", name_hint="4"),
        {"type_key": "runtime.String", "repr_str": "main"},
        node("tir.PrimFunc", body="6"),
        node("tir.BlockRealize", block="7"),
        node("tir.Block", name_hint="8", iter_vars="9", body="10"),
        {"type_key": "runtime.String", "repr_str": "root"},
        {"type_key": "Array"},
        node("tir.For", body="11"),
        node("tir.BlockRealize", block="12"),
        node("tir.Block", name_hint="13", iter_vars="14", body="21"),
        {"type_key": "runtime.String", "repr_str": "matmul"},
        {"type_key": "Array", "data": [15, 18]},
        node("tir.IterVar", dom="16", iter_type="0"),
        node("Range", extent="17"),
        node("IntImm", value=str(extent)),
        node("tir.IterVar", dom="19", iter_type="2"),
        node("Range", extent="20"),
        node("IntImm", value="32"),
        node("tir.BufferStore"),
    ]
    return {"root": 1, "nodes": nodes, "b64ndarrays": [], "attrs": {"tvm_version": "0.17.0"}}


def _new_graph(extent: int) -> dict[str, Any]:
    def node(kind: str, data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data}

    nodes: list[dict[str, Any]] = [
        {"type": "None"},
        node("ffi.String", "main"),
        node("ir.GlobalVar", {"name_hint": 1}),
        node("ffi.String", "matmul"),
        node("ir.IntImm", {"dtype": "int64", "value": extent}),
        node("ir.Range", {"min": 0, "extent": 4}),
        node("tir.IterVar", {"dom": 5, "iter_type": 0}),
        node("tir.Var", {"name": 3}),
        node("ir.Range", {"min": 0, "extent": 7}),
        node("tir.IterVar", {"dom": 8, "iter_type": 2}),
        node("ffi.Array", [6, 9]),
        node("tir.BufferStore", {}),
        node("tir.Block", {"name_hint": 3, "iter_vars": 10, "body": 11}),
        node("tir.BlockRealize", {"block": 12}),
        node("tir.For", {"body": 13}),
        node("ffi.Array", [14]),
        node("tir.SeqStmt", {"seq": 15}),
        node("tir.PrimFunc", {"body": 16}),
        node("ffi.Map", [2, 17]),
        node("ir.IRModule", {"functions": 18}),
    ]
    return {"root_index": 19, "nodes": nodes, "metadata": {"tvm_version": "0.23.0"}}


def dump(entry: Any) -> bytes:
    """One line as Python's json writes it, without its end."""
    return json.dumps(entry).encode()


def write(path: Path, *entries: Any, end: bytes = b"\n") -> Path:
    """Write lines (objects are dumped, bytes stand as they are)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [entry if isinstance(entry, bytes) else dump(entry) for entry in entries]
    path.write_bytes(b"\n".join(lines) + end)
    return path
