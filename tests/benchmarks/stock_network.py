"""TVM's own best practice for a network, stopped after so many seconds, then compiled.

    python tests/benchmarks/stock_network.py NETWORK.onnx FOLDER --seconds 300

``static_shape_tuning_pipeline`` with packed weights, as TVM 0.27 has it, on the network as this
toolkit imports it. FOLDER gets what ``toolkit compile`` writes too (a library, ``run.py``), so that
``toolkit compile NETWORK.onnx --against FOLDER`` reads both in turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import orjson
import tvm
from tvm import relax

from toolkit import children
from toolkit.live.measure.machine import default_target, parse_target, target_threads
from toolkit.networks.graph.importing import load_model
from toolkit.networks.library import FACTS, LIBRARY, inputs_of, write_runner

MANY = 1_000_000


def run(path: Path, folder: Path, target: str, trials: int) -> None:
    """Tune with so many trials; with none, compile by what is in the folder's database."""
    module = load_model(path)
    made = tvm.target.Target(orjson.loads(target))
    pipeline = relax.pipeline.static_shape_tuning_pipeline(
        trials, made, str(folder / "database"), cpu_weight_prepack=True
    )
    tuned = pipeline(module)
    if trials:
        return
    tvm.compile(tuned, target=made).export_library(str(folder / LIBRARY))
    facts = {"threads": target_threads(target), "inputs": inputs_of(tuned)}
    (folder / FACTS).write_bytes(orjson.dumps(facts))
    write_runner(folder)


def main() -> None:
    """Tune in a process that is ended when its time is over; compile in another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trials", type=int)
    given = parser.parse_args()
    if given.trials is not None:
        run(given.network, given.folder, parse_target(default_target(given.threads)), given.trials)
        return
    (given.folder / "database").mkdir(parents=True, exist_ok=True)
    again = [sys.executable, __file__, str(given.network), str(given.folder)]
    again += ["--threads", str(given.threads), "--trials"]
    with (given.folder / "stock.log").open("wb") as log:
        tuning = children.start([*again, str(MANY)], stdout=log, stderr=log)
        try:
            tuning.wait(timeout=given.seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            children.end(tuning)
        subprocess.run([*again, "0"], stdout=log, stderr=log, check=True)


if __name__ == "__main__":
    main()
