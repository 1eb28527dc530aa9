"""The process that runs an older TVM's Ansor for the extractor ``ansor-per-store``.

A script for any Python from 3.7 on that has a TVM with ``auto_scheduler`` (0.8 to 0.19), and
nothing of this toolkit: it is run by its path. Lines of JSON on standard input and output:

- ``{"workloads": [files]}``: Python files that register workloads; answered by
  ``{"ready": true, "tvm": version, "columns": 164}``.
- ``{"workload": key}``: can it be rebuilt? Answered by ``{"known": true}``, or by
  ``{"known": false, "error": why}``.
- ``{"records": [lines]}``: the records' features, answered by ``{"counts": [stores], "values":
  base64}``: float32, a row a store, record after record. A record that TVM cannot lower has none.
"""

from __future__ import annotations

import base64
import json
import os
import runpy
import sys
from typing import Any


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
        import tvm
        from tvm.auto_scheduler.feature import get_per_store_feature_names
        from tvm.auto_scheduler.workload_registry import workload_key_to_tensors

        for path in header["workloads"]:
            runpy.run_path(path)
        columns = len(get_per_store_feature_names())
    except Exception as error:  # whatever is wrong with that interpreter is told, in one line
        reply({"ready": False, "error": f"{type(error).__name__}: {error}"[-300:]})
        return
    reply({"ready": True, "tvm": tvm.__version__, "columns": columns})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "workload" in request:
                workload_key_to_tensors(request["workload"])
                reply({"known": True})
            else:
                reply(_extract(request["records"], columns))
        except Exception as error:
            reply({"known": False, "error": f"{type(error).__name__}: {error}"[-300:]})


def _extract(lines: list[str], columns: int) -> dict[str, Any]:
    import numpy as np
    from tvm.auto_scheduler.feature import get_per_store_features_from_measure_pairs
    from tvm.auto_scheduler.measure_record import load_record_from_string

    pairs = []
    places = []
    for place, line in enumerate(lines):
        try:
            pairs.append(load_record_from_string(line))
        except Exception:  # TVM's errors have no type in common
            continue
        places.append(place)
    counts = [0] * len(lines)
    rows = [np.zeros((0, columns), dtype="float32")]
    if pairs:
        inputs, results = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        found = get_per_store_features_from_measure_pairs(inputs, results)[0]
        for number, place in enumerate(places):
            stores = np.asarray(found[number], dtype="float32")
            # A record that could not be lowered has one row of zeros, or none.
            if stores.ndim == 2 and stores.shape[1] == columns and stores.any():
                counts[place] = len(stores)
                rows.append(stores)
    values = np.concatenate(rows)
    return {"counts": counts, "values": base64.b64encode(values.tobytes()).decode()}


if __name__ == "__main__":
    main()
