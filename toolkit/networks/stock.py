"""TVM's own best practice for a network, in its own process: it tunes until it is ended.

It runs ``static_shape_tuning_pipeline`` of TVM 0.27 with packed weights, on the network as the
toolkit imports it. The same pipeline, without trials, compiles with the database.

One thing is changed: build workers start faster (``toolkit.live.space.intrinsics``).
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import orjson
import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.builder import LocalBuilder

from toolkit.atomic import write_atomically
from toolkit.live.measure.machine import target_threads, tvm_target
from toolkit.live.space.intrinsics import load_intrinsics
from toolkit.networks.codegen.library import FACTS, LIBRARY, inputs_of, write_runner
from toolkit.networks.importing.files import load_model

MODULE = "toolkit.networks.stock"

ENDLESS = 1_000_000
"""More trials than any time limit allows."""


def run(spec: dict[str, Any]) -> None:
    """Tune ``network`` into ``database``; or, if ``out`` is given, compile it there."""
    load_intrinsics(spec["target"])
    start = LocalBuilder.__init__  # the pipeline does not accept a builder
    load = functools.partial(load_intrinsics, spec["target"])
    LocalBuilder.__init__ = functools.partialmethod(start, initializer=load)
    module = load_model(Path(spec["network"]), spec["shapes"])
    target = tvm_target(spec["target"])
    pipeline = relax.pipeline.static_shape_tuning_pipeline(
        0 if "out" in spec else ENDLESS, target, spec["database"], cpu_weight_prepack=True
    )
    tuned = pipeline(module)
    if "out" not in spec:
        return
    out = Path(spec["out"])
    tvm.compile(tuned, target=target).export_library(str(out / LIBRARY))
    facts = {"threads": target_threads(spec["target"]), "inputs": inputs_of(tuned)}
    write_atomically(out / FACTS, orjson.dumps(facts))
    write_runner(out)


if __name__ == "__main__":
    run(orjson.loads(sys.argv[1]))
