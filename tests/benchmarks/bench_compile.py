"""Compiling a tuned network as the toolkit does, beside TVM in one piece: seconds, same outputs.

python tests/benchmarks/bench_compile.py MODEL.onnx DATABASE [--rounds 3]

Both sides are given the same scheduled network: one packs the weights with ``FoldConstant`` and
hands all functions to LLVM together, the other is ``write_network``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
from tvm import relax

from toolkit.live.measure.machine import tvm_target
from toolkit.live.space.quiet import quiet
from toolkit.networks.codegen.library import FACTS, LIBRARY, write_network
from toolkit.networks.codegen.objects import ObjectFiles
from toolkit.networks.codegen.storage import network_pipeline
from toolkit.networks.compile import tuned_target, tuned_tolerance
from toolkit.networks.run_network import Network, random_inputs
from toolkit.networks.selection import read_records, scheduled
from toolkit.networks.tasks import network_of


def main() -> None:
    """Print seconds of both sides, round by round, and the median of their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("database", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    target = tuned_target(given.database)
    if target is None:
        raise SystemExit(f"{given.database} does not say for which target it was tuned")
    graph = network_of(given.model, target, tolerance=tuned_tolerance(given.database))
    module = scheduled(graph, read_records(graph, given.database, target), target)
    ratios = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(given.rounds):
            seconds = {}
            # Who goes first changes.
            for side in ("whole", "objects") if number % 2 else ("objects", "whole"):
                (folder / side).mkdir(exist_ok=True)
                begun = time.perf_counter()
                if side == "whole":
                    _in_one_piece(module, target, folder / side)
                else:
                    with ObjectFiles(target) as objects:
                        write_network(module, target, folder / side, objects)
                seconds[side] = time.perf_counter() - begun
            ratios.append(seconds["whole"] / seconds["objects"])
            print(f"in one piece {seconds['whole']:.1f} s, objects {seconds['objects']:.1f} s")
        (folder / "whole" / FACTS).write_bytes((folder / "objects" / FACTS).read_bytes())
        outputs = [_outputs(folder / side) for side in ("whole", "objects")]
    same = all(np.array_equal(*pair) for pair in zip(*outputs, strict=True))
    print(f"{np.median(ratios):.2f} times as fast; outputs {'equal' if same else 'DIFFER'}")


def _in_one_piece(module: tvm.IRModule, target: str, folder: Path) -> None:
    t = relax.transform
    packing = [t.SplitLayoutRewritePreproc(), t.LiftTransformParams(), t.FoldConstant()]
    with tvm_target(target) as made, quiet():
        packed = tvm.transform.Sequential([*packing, t.DeadCodeElimination()])(module)
        executable = tvm.compile(packed, target=made, relax_pipeline=network_pipeline(made))
        executable.export_library(str(folder / LIBRARY))


def _outputs(folder: Path) -> list[Any]:
    network = Network(folder)
    return network(*random_inputs(network.inputs))


if __name__ == "__main__":
    main()
