"""One leg of a race in its own process: TVM's own tuner or a strategy of the toolkit.

    python -m toolkit.live.race.leg SPEC.json

The process imports everything and parses TVM's intrinsics before the clock starts, for all arms.
The time includes loading models, generating design spaces and starting workers.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from toolkit.atomic import write_atomically
from toolkit.children import end_group_with_this

LEG_FILE = "leg.json"
STOCK = "stock"


def run_leg(spec: dict[str, Any]) -> dict[str, Any]:
    """Run one leg and return its summary (JSON-ready); times in seconds.

    ``spec``: ``arm``, ``folder``, ``workload`` (line of a database), ``name``, ``target``,
    ``protocol``, ``trials``, ``seed``, ``strategy``, ``models`` (folders), ``engine``, and
    optionally ``options`` of the strategy.
    """
    from toolkit.live.measure.engines import open_engine
    from toolkit.live.measure.protocol import Protocol
    from toolkit.live.race.baselines import BASELINES, run_baseline
    from toolkit.live.space.intrinsics import load_intrinsics
    from toolkit.live.space.programs import load_workload
    from toolkit.live.tune.settings import TuneSettings
    from toolkit.live.tune.tasks import TuneTask
    from toolkit.live.tune.tune import tune
    from toolkit.search.runner import WallClock
    from toolkit.training.trained.models import load_trained

    folder, target = Path(spec["folder"]), spec["target"]
    protocol = Protocol(**{**spec["protocol"], "cores": tuple(spec["protocol"]["cores"])})
    module = load_workload(spec["workload"])
    load_intrinsics(target)
    started = time.perf_counter()
    if spec["arm"] in BASELINES:
        seconds = run_baseline(
            BASELINES[spec["arm"]], module, folder, protocol=protocol, spec=spec, started=started
        )
        return {"arm": spec["arm"], "seconds": seconds}
    clock = WallClock()
    result = tune(
        [TuneTask(spec["name"], module)],
        folder,
        target=target,
        protocol=protocol,
        settings=TuneSettings(
            trials=spec["trials"],
            strategy=spec["strategy"],
            options=spec.get("options", {}),
            seed=spec["seed"],
        ),
        guides=load_trained(spec["models"]),
        engine=lambda: open_engine(target, protocol, **spec["engine"]),
        machine=spec["machine"],
        clock=clock,
    )
    return {"arm": spec["arm"], "seconds": result["seconds"], "tuned": dict(result)}


def main() -> None:
    """Run the leg of a spec file and write its summary beside the measurements."""
    # TVM's own tuner starts builders and runners that would outlive this process.
    end_group_with_this()
    spec = orjson.loads(Path(sys.argv[1]).read_bytes())
    if spec["affinity"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, spec["affinity"])
    from toolkit.errors import ToolkitError

    folder = Path(spec["folder"])
    try:
        summary = run_leg(spec)
    except ToolkitError as error:
        (folder / "error.json").write_bytes(
            orjson.dumps({"what": error.what, "where": error.where, "cure": error.cure})
        )
        sys.exit(1)
    write_atomically(folder / LEG_FILE, orjson.dumps(summary, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
