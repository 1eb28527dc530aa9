"""The process that runs a TVM for the extractors ``per-store`` and ``ansor-per-store``.

A script for any Python from 3.7 on that has a TVM. It uses nothing of this toolkit and is run by
its path. It reads and writes lines of JSON on standard input and output. The first is the header:

- ``{"workloads": [files]}``: Ansor's records, with Python files that register workloads (a TVM with
  ``auto_scheduler``, 0.8 to 0.19).
- ``{"workload": line, "target": target, "arguments": arguments}``: MetaSchedule's traces of one
  workload.

It is answered by ``{"ready": true, "tvm": version}``, or by ``{"ready": false, "error": why}``.
Then come requests:

- ``{"workload": key}``: can Ansor's workload be rebuilt? Answered by ``{"known": true}``.
- ``{"workload": line, "target": target, "arguments": arguments}``: from here on the records are of
  this workload. Answered in the same way.
- ``{"records": [texts]}``: answered by ``{"counts": [stores], "dtype": type, "values": base64}``, a
  row per store, record after record. A record that TVM cannot lower has none.

A request that fails is answered by ``{"error": why}``.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import inspect
import json
import os
import runpy
import sys
import types
from typing import Any

COLUMNS = 164
INTRINSICS = "tvm.s_tir.tensor_intrin"
STUB = "Stands in their place."


def ansor(header: dict[str, Any]) -> tuple[Any, Any]:
    """Return what extracts the stores of Ansor's log lines, and what rebuilds a workload."""
    import numpy as np
    from tvm.auto_scheduler import feature, measure_record, workload_registry

    for path in header["workloads"]:
        runpy.run_path(path)
    columns = len(feature.get_per_store_feature_names())
    if columns != COLUMNS:
        raise ValueError(f"this TVM extracts {columns} columns, not {COLUMNS}")

    def stores(lines: list[str]) -> list[Any]:
        found: list[Any] = [None] * len(lines)
        pairs = {}
        for place, line in enumerate(lines):
            with contextlib.suppress(Exception):  # TVM's errors have no type in common
                pairs[place] = measure_record.load_record_from_string(line)
        if pairs:
            inputs, results = [p[0] for p in pairs.values()], [p[1] for p in pairs.values()]
            extracted = feature.get_per_store_features_from_measure_pairs(inputs, results)[0]
            for number, place in enumerate(pairs):
                matrix = np.asarray(extracted[number], dtype="float32")
                # A record that could not be lowered has one row of zeros, or none.
                if matrix.ndim == 2 and matrix.shape[1] == COLUMNS and matrix.any():
                    found[place] = matrix
        return found

    return stores, workload_registry.workload_key_to_tensors


def meta_schedule(header: dict[str, Any]) -> tuple[Any, Any]:
    """Return a function that extracts the stores of one workload's traces, and ``None``."""
    # TuneContext imports some 500 intrinsics in ten seconds; few schedules use one.
    if INTRINSICS not in sys.modules:
        sys.modules[INTRINSICS] = types.ModuleType(INTRINSICS, STUB)
    import tvm
    from tvm.s_tir import meta_schedule as ms

    target = json.loads(header["target"])
    workload = ms.database.Workload.from_json(json.loads(header["workload"]))
    context = ms.TuneContext(mod=workload.mod, target=tvm.target.Target(target), num_threads=1)
    extractor = ms.feature_extractor.PerStoreFeature()

    def stores(traces: list[str]) -> list[Any]:
        found: list[Any] = [None] * len(traces)
        for place, trace in enumerate(traces):
            if "Tensorize" in trace and sys.modules[INTRINSICS].__doc__ == STUB:
                _load_intrinsics()
            entry = [json.loads(trace), [1.0], target, header["arguments"]]
            with contextlib.suppress(Exception):  # TVM refuses the trace
                record = ms.database.TuningRecord.from_json(entry, workload)
                [matrix] = extractor.extract_from(context, [record.as_measure_candidate()])
                found[place] = matrix.numpy()
        return found

    return stores, None


def _load_intrinsics() -> None:
    """Register TVM's tensor intrinsics, without the call stacks that make it slow.

    TVM inspects the stack for each, to see whether it is defined in a class; none of these is.
    """
    del sys.modules[INTRINSICS]
    original = inspect.stack
    inspect.stack = lambda context=1: []
    try:
        importlib.import_module(INTRINSICS)
    finally:
        inspect.stack = original


def main() -> None:
    """Answer until standard input ends."""
    # What TVM and the workload files print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    header = json.loads(sys.stdin.readline())
    try:
        stores, rebuild = ansor(header) if "workloads" in header else meta_schedule(header)
    except Exception as error:  # any fault of that interpreter is reported, in one line
        reply({"ready": False, "error": f"{type(error).__name__}: {error}"[-300:]})
        return
    reply({"ready": True, "tvm": sys.modules["tvm"].__version__})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "target" in request:
                stores, rebuild = meta_schedule(request)
                reply({"known": True})
            elif "workload" in request:
                rebuild(request["workload"])
                reply({"known": True})
            else:
                found = stores(request["records"])
                there = [matrix for matrix in found if matrix is not None]
                counts = [0 if matrix is None else len(matrix) for matrix in found]
                dtype = str(there[0].dtype) if there else "float32"
                values = base64.b64encode(b"".join(matrix.tobytes() for matrix in there)).decode()
                reply({"counts": counts, "dtype": dtype, "values": values})
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {error}"[-300:]})


if __name__ == "__main__":
    main()
