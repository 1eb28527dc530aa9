"""Two Dask workers beside one, and one that is killed midway: time, and the same bytes.

python tests/benchmarks/bench_cluster.py DATASET [--scenario quick] [--seeds 25] [--model MODEL]
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from toolkit.cluster import Cluster
from toolkit.replay import simulate

FILES = ("runs.parquet", "results.parquet", "summary.json")


def main() -> None:
    """Print seconds of one and two workers, their ratio, and whether all bytes agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--scenario", default="quick")
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--model", type=Path, action="append", default=[])
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        folder, seconds = Path(name), {}
        for label, workers in (("one", 1), ("two", 2), ("one killed", 2)):
            with Cluster(f"local:{workers}") as cluster:
                begun = time.perf_counter()
                if label == "one killed":
                    threading.Timer(seconds["two"] / 2, _kill_one, [cluster]).start()
                simulate(
                    given.dataset,
                    given.scenario,
                    models=given.model,
                    seeds=given.seeds,
                    workers=cluster,
                    out=folder / label,
                )
                seconds[label] = time.perf_counter() - begun
            print(f"{label}: {seconds[label]:.1f} s", flush=True)
        contents = [[(folder / label / file).read_bytes() for file in FILES] for label in seconds]
        same = all(content == contents[0] for content in contents)
    print(f"one over two: {seconds['one'] / seconds['two']:.2f}; same bytes: {same}")


def _kill_one(cluster: Cluster) -> None:
    os.kill(min(cluster._client.run(os.getpid).values()), signal.SIGKILL)


if __name__ == "__main__":
    main()
