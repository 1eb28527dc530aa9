"""The process that runs TVM for the extractor ``per-store``.

Lines of JSON on standard input: first the workload, target and arguments (answered by
``{"ready": true}``), then one schedule a line, answered by ``{"stores": [[164 numbers], ...]}`` or,
where TVM refuses the trace, ``{"stores": null}``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from typing import Any

import orjson

INTRINSICS = "tvm.s_tir.tensor_intrin"


def main() -> None:
    """Answer until standard input ends."""
    lines = sys.stdin.buffer
    header = orjson.loads(lines.readline())
    # A context imports some 500 intrinsics, which takes ten seconds; few schedules use one.
    sys.modules[INTRINSICS] = types.ModuleType(INTRINSICS)
    loaded = False
    import tvm
    from tvm.s_tir import meta_schedule as ms

    target = orjson.loads(header["target"])
    workload = ms.database.Workload.from_json(orjson.loads(header["workload"]))
    context = ms.TuneContext(mod=workload.mod, target=tvm.target.Target(target), num_threads=1)
    extractor = ms.feature_extractor.PerStoreFeature()
    _reply({"ready": True})
    for line in lines:
        schedule = orjson.loads(line)["schedule"]
        if "Tensorize" in schedule and not loaded:
            _load_intrinsics()
            loaded = True
        trace = orjson.loads(schedule)
        entry = [trace, [1.0], target, header["arguments"]]
        try:
            record = ms.database.TuningRecord.from_json(entry, workload)
            [stores] = extractor.extract_from(context, [record.as_measure_candidate()])
        except Exception as error:
            _reply({"stores": None, "error": f"{type(error).__name__}: {error}"[-300:]})
            continue
        _reply({"stores": stores.numpy().tolist()})


def _load_intrinsics() -> None:
    """Register TVM's tensor intrinsics, without the call stacks that make it slow.

    TVM takes a stack for each, to see whether it stands in a class; none of these does.
    """
    del sys.modules[INTRINSICS]
    original = inspect.stack

    def empty(context: int = 1) -> list[Any]:
        return []

    inspect.stack = empty
    try:
        importlib.import_module(INTRINSICS)
    finally:
        inspect.stack = original


def _reply(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
