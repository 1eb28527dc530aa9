"""Halide's own autoscheduler beside this toolkit's tuning, on the same operators; run by hand.

    python -m venv HALIDE && HALIDE/bin/pip install halide==21.0.0 numpy
    toolkit ingest datasets --dataset DATASET
    toolkit train throughput --recipe throughput-hybrid --dataset DATASET --out MODEL
    python -P tests/benchmarks/bench_halide.py --halide-python HALIDE/bin/python --model MODEL

- ``halide``: Adams2019 with the weights that it ships with. It measures nothing.
- ``model only``: trial 1 of ``beam`` with MODEL: what the model takes for best.
- ``beam``: the same search, with ``--trials`` measurements.
- ``default``: ``toolkit tune`` as it comes, without a model, with as many.

Each program is a shared library, read in ``--rounds`` processes of its own; programs take turns. A
process has the first ``--threads`` cores. It runs its program for 0.2 s, then for five blocks of
0.1 s or more, called through ctypes (Halide) or TVM's FFI: a microsecond or two a call. Its figure
is the median block; a program's is the median of its processes. Outputs must lie within 0.001 of
their range of NumPy's. Seconds are those of whole commands, with Python's start and compiling.

What is not alike. Halide's weights are of another processor, MODEL is of the bundled logs. Halide
searches all schedules of its language, ours TVM's design spaces. Halide can measure and train again
as well: not run here. Images have their border: a padding stage makes Halide's search slow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload

from toolkit.live.measure.machine import processors_by_core, tvm_target
from toolkit.networks.compile import tuned_target

# Rows, columns, depth; height, width, channels in and out; rows, columns.
SIZES = {"matmul": (512, 512, 512), "conv2d": (56, 56, 64, 64), "softmax": (1024, 1024)}
SIZES |= {f"{name}-quick": tuple(size // 4 for size in sizes) for name, sizes in SIZES.items()}

HALIDE = """
import json, sys, time, halide as hl
name, sizes, threads, target = json.loads(sys.argv[1])
hl.load_plugin(hl.install_dir() + "/lib64/libautoschedule_adams2019.so")
c, x, y, out, total = hl.Var("c"), hl.Var("x"), hl.Var("y"), hl.Func("out"), hl.Func("total")
given = lambda shapes: [hl.ImageParam(hl.Float(32), len(one)) for one in shapes]
if name.startswith("matmul"):
    rows, columns, depth = sizes
    shapes, whole = [(depth, rows), (columns, depth)], (columns, rows)
    a, b = params = given(shapes)
    k = hl.RDom([(0, depth)])
    total[x, y] = 0.0
    total[x, y] += a[k.x, y] * b[x, k.x]
    out[x, y] = total[x, y]
elif name.startswith("conv2d"):
    height, width, deep, wide = sizes
    shapes = [(deep, width + 2, height + 2), (wide, deep, 3, 3), (wide,)]
    a, b, bias = params = given(shapes)
    k, whole = hl.RDom([(0, deep), (0, 3), (0, 3)]), (wide, width, height)
    total[c, x, y] = bias[c]
    total[c, x, y] += b[c, k.x, k.y, k.z] * a[k.x, x + k.y, y + k.z]
    out[c, x, y] = hl.max(total[c, x, y], 0.0)
else:
    shapes, whole = [sizes[::-1]], sizes[::-1]
    (a,) = params = given(shapes)
    k, top, power = hl.RDom([(0, sizes[1])]), hl.Func("top"), hl.Func("power")
    top[y] = hl.f32(-3.4e38)
    top[y] = hl.max(top[y], a[k.x, y])
    power[x, y] = hl.exp(a[x, y] - top[y])
    total[y] = 0.0
    total[y] += power[k.x, y]
    out[x, y] = power[x, y] / total[y]
for param, shape in [*zip(params, shapes), (out.output_buffer(), whole)]:
    for number, extent in enumerate(shape):
        param.dim(number).set_bounds(0, extent)
    param.set_estimates([(0, extent) for extent in shape])
here, pipeline, begun = hl.get_host_target(), hl.Pipeline(out), time.perf_counter()
chosen = hl.AutoschedulerParams("Adams2019", {"parallelism": threads})
source = pipeline.apply_autoscheduler(here, chosen).schedule_source
search_s = time.perf_counter() - begun
pipeline.compile_to_object(target, params, "program", here)
print(json.dumps({"search_s": search_s, "target": str(here), "schedule": source}))
"""

READER = """
import ctypes, json, os, sys, time, numpy as np
from functools import partial
side, library, arrays, cores = json.loads(sys.argv[1])
os.sched_setaffinity(0, cores)
*inputs, wanted = np.load(arrays).values()
inputs.append(np.zeros_like(wanted))
if side == "halide":
    kept = []
    def buffer(values):  # halide_buffer_t
        # Aligned as TVM's tensors are: NumPy's own vectors may straddle cache lines.
        whole = np.zeros(values.nbytes + 64, np.uint8)
        begin = -whole.ctypes.data % 64
        inner = whole[begin : begin + values.nbytes].view("float32").reshape(values.shape)
        inner[...] = values
        # Least index, extent, step, flags; the innermost comes first.
        steps = [(0, n, s // 4, 0) for n, s in zip(inner.shape[::-1], inner.strides[::-1])]
        dims = np.array(steps, np.int32)
        kind = 2 | 32 << 8 | 1 << 16 | values.ndim << 32  # one float of 32 bits
        kept[:] = [*kept, inner, dims]
        return (ctypes.c_uint64 * 7)(0, 0, inner.ctypes.data, 0, kind, dims.ctypes.data, 0)
    buffers = [buffer(values[0] if values.shape[0] == 1 else values) for values in inputs]
    run = partial(ctypes.CDLL(library).program, *buffers)
    assert not run(), "Halide's program refused its buffers"
    result = lambda: kept[-2].reshape(wanted.shape)
else:
    import tvm
    tensors = [tvm.runtime.tensor(values) for values in inputs]
    run = partial(tvm.runtime.load_module(library)["main"], *tensors)
    result = tensors[-1].numpy
def block(seconds):
    calls, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        run()
        calls += 1
    return taken / calls
block(0.2)
blocks = [block(0.1) for _ in range(5)]
error = float(np.abs(result() - wanted).max() / np.ptp(wanted))
print(json.dumps({"blocks_s": blocks, "error": error}))
"""


def workload(name: str) -> list[Any]:
    """An operator as TVM's tensors."""
    sizes = SIZES[name]
    if name.startswith("matmul"):
        return list(te_workload.matmul(*sizes))
    if name.startswith("softmax"):
        data = te.placeholder(sizes, name="data")
        return [data, topi.nn.fast_softmax(data, axis=1)]
    height, width, deep, wide = sizes
    shapes = ((1, height + 2, width + 2, deep), (3, 3, deep, wide), (wide,))
    data, weight, bias = (te.placeholder(shape) for shape in shapes)
    i, j, k = (te.reduce_axis((0, extent)) for extent in (3, 3, deep))
    total = te.compute(
        (1, height, width, wide),
        lambda n, h, w, c: te.sum(data[n, h + i, w + j, k] * weight[i, j, k, c], axis=[i, j, k]),
    )
    return [data, weight, bias, topi.nn.relu(topi.add(total, bias))]


# What 'toolkit tune --workload THIS_FILE:NAME' reads.
WORKLOADS = {name: lambda name=name: workload(name) for name in SIZES}


def arrays_of(name: str, path: Path) -> None:
    """Write random inputs and NumPy's output."""
    rng, shapes = np.random.default_rng(0), [tensor.shape for tensor in workload(name)]
    given = [rng.standard_normal([int(extent) for extent in shape]) for shape in shapes[:-1]]
    if name.startswith("matmul"):
        wanted = given[0] @ given[1]
    elif name.startswith("softmax"):
        wanted = np.exp(given[0]) / np.exp(given[0]).sum(axis=1, keepdims=True)
    else:
        windows = np.lib.stride_tricks.sliding_window_view(given[0], (3, 3), (1, 2))
        total = np.tensordot(windows, given[1], ((4, 5, 3), (0, 1, 2)))
        wanted = np.maximum(total + given[2], 0)
    np.savez(path, *(values.astype(np.float32) for values in (*given, wanted)))


def tuned(given: argparse.Namespace, name: str, path: Path, *more: object) -> dict[str, Any]:
    """Tune an operator and compile the program that the database names first."""
    chosen = ["--workload", f"{Path(__file__).resolve()}:{name}", "--no-recorded", "--out", path]
    chosen += ["--threads", given.threads, "--seed", given.seed, *more]
    command = [str(Path(sys.executable).with_name("toolkit")), "tune", *map(str, chosen)]
    # Models in the folder that it was started in are not for the search that has none.
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=path.parent)
    database = ms.database.JSONDatabase(work_dir=str(path), allow_missing=False)
    own = database.get_all_tuning_records()[0].workload
    for best in database.get_top_k(own, 1):  # none where all trials failed
        schedule = tvm.s_tir.Schedule(own.mod)
        best.trace.apply_to_schedule(schedule, remove_postproc=False)
        built = tvm.compile(schedule.mod, target=tvm_target(tuned_target(path) or "llvm"))
        built.export_library(f"{path}.so")
    return {"tuned": json.loads((path / "tuned.json").read_text())}


def halide(given: argparse.Namespace, name: str, path: Path) -> dict[str, Any]:
    """Let Adams2019 schedule a pipeline, and compile it."""
    told = json.dumps([name, SIZES[name], given.threads, f"{path}.o"])
    text = subprocess.check_output([given.halide_python, "-c", HALIDE, told])
    subprocess.run(["cc", "-shared", f"{path}.o", "-o", f"{path}.so", "-lm"], check=True)
    # It prints its warnings there as well.
    return {"halide": json.loads(text.splitlines()[-1])}


def compare(given: argparse.Namespace, name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Search on all sides, read the programs in turns, and print a table."""
    guided = ["--strategy", "beam", *(("--model", given.model.resolve()) if given.model else ())]
    sides = {"model only": [*guided, "--trials", 1]} if given.model else {}
    sides |= {"beam": [*guided, "--trials", given.trials], "default": ["--trials", given.trials]}
    rows: dict[str, dict[str, Any]] = {}
    for side in ("halide", *sides):
        begun, path = time.perf_counter(), folder / f"{name}-{side}"
        made = (tuned if side in sides else halide)(given, name, path, *sides.get(side, ()))
        rows[side] = {**made, "seconds": time.perf_counter() - begun, "readings": []}
    arrays_of(name, folder / f"{name}.npz")
    cores = [core[0] for core in processors_by_core()][: given.threads]
    counts = dict.fromkeys(("TVM_NUM_THREADS", "HL_NUM_THREADS"), str(given.threads))
    there = [side for side in rows if (folder / f"{name}-{side}.so").exists()]
    for number in range(given.rounds):
        for side in there[number % len(there) :] + there[: number % len(there)]:
            python = given.halide_python if side == "halide" else sys.executable
            told = json.dumps([side, f"{folder}/{name}-{side}.so", f"{folder}/{name}.npz", cores])
            command = [python, "-c", READER, told]
            text = subprocess.check_output(command, env={**os.environ, **counts})
            rows[side]["readings"].append(json.loads(text))
    print(f"{name:15} {'ms':>8} {'lowest':>8} {'highest':>8} {'x halide':>9} {'search s':>9}")
    for side, row in ((side, rows[side]) for side in there):
        times = [1e3 * np.median(reading["blocks_s"]) for reading in row["readings"]]
        worst = max(reading["error"] for reading in row["readings"])
        row["ms"] = float(np.median(times))
        ratio, wrong = row["ms"] / rows["halide"]["ms"], "  WRONG" * (not worst <= 1e-3)
        print(f"{side:15} {row['ms']:8.3f} {min(times):8.3f} {max(times):8.3f}", end=" ")
        print(f"{ratio:9.2f} {row['seconds']:9.1f}{wrong}", flush=True)
    return rows


def main() -> None:
    """Compare the pipelines one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipelines", nargs="*", default=["matmul", "conv2d", "softmax"])
    parser.add_argument("--halide-python", required=True, help="Python that has halide")
    parser.add_argument("--model", type=Path, help="folder of a throughput-hybrid model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5, help="processes that read each program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(os.devnull), help="all figures, as JSON")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = {name: compare(given, name, Path(folder)) for name in given.pipelines}
    given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
