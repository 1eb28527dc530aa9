"""Compiles a scheduled network into a library, and reports which functions use a tuned record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import tvm
from tvm import relax

from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.measure.machine import target_threads, tvm_target
from toolkit.live.space.programs import operations
from toolkit.live.space.quiet import quiet
from toolkit.networks.codegen.objects import ObjectFiles
from toolkit.networks.codegen.packing import pack_weights
from toolkit.networks.codegen.storage import network_pipeline
from toolkit.networks.graph.prepare import Graph, said

LIBRARY, FACTS, RUNNER = "network.so", "network.json", "run.py"


@dataclass(frozen=True)
class Coverage:
    """Which functions of a network use a tuned record, and which do not, by name."""

    tuned: list[str]
    untuned: list[str]


def coverage_of(graph: Graph, module: tvm.IRModule) -> Coverage:
    """Return which functions of a scheduled network use a record, of those that are tasks."""
    names = {str(name.name_hint) for name, one in graph.module.functions.items() if is_task(one)}
    tuned = {name for name in names if is_scheduled(module[name])}
    return Coverage(sorted(tuned), sorted(names - tuned))


def is_task(function: Any) -> bool:
    """Return whether a function is to be tuned: it has no schedule, and is no reshape.

    The compiler turns a reshape into a view, but only if it is unscheduled.
    """
    known = isinstance(function, relax.Function) or is_scheduled(function)
    return not known and not relax.analysis.has_reshape_pattern(function)


def is_scheduled(function: Any) -> bool:
    """Return whether a function has a schedule and is compiled as it is."""
    return bool(function.attrs and function.attrs.get("tirx.is_scheduled", False))


def flops_of(graph: Graph, name: str) -> float | None:
    """Return the floating-point operations of a function; ``None`` if there is no such function."""
    for variable, function in graph.module.functions.items():
        if variable.name_hint == name and not isinstance(function, relax.Function):
            return operations(tvm.IRModule({"main": function}))
    return None


def build_library(module: tvm.IRModule, target: str, path: Path, objects: ObjectFiles) -> None:
    """Pack the weights for the schedules, compile, and write one shared library.

    Raises
    ------
    LiveError
        When TVM cannot compile the network, or there is no C++ compiler to link with.
    """
    t = relax.transform
    passes = [t.SplitLayoutRewritePreproc(), t.LiftTransformParams()]
    passes += [tvm.transform.module_pass(lambda m, _: pack_weights(m), opt_level=0)]
    # Drop the functions that packed the weights: half of the module, and no longer needed.
    passes += [t.FoldConstant(), t.DeadCodeElimination()]
    try:
        with tvm_target(target) as made, quiet():
            lowered = tvm.transform.Sequential([*passes, network_pipeline(made)])(module)
            unfinished = path.with_suffix(".part.so")
            objects.link(lowered, unfinished)
    except Exception as error:  # TVM's errors have no common type
        left = re.search(r"Offending call:\s*R\.([\w.]+)", str(error))
        if left:
            raise LiveError(
                f"TVM does not lower the operator {left[1]}",
                cure="try --layout NCHW, or export the model without this operator",
            ) from None
        raise LiveError(
            f"TVM cannot compile the network: {said(error)[:200]}",
            cure="check that a C++ compiler (g++ or clang++) is installed: TVM links with it",
        ) from None
    unfinished.replace(path)


def write_network(module: tvm.IRModule, target: str, folder: Path, objects: ObjectFiles) -> None:
    """Write a folder that can be loaded and measured: a network's library and its facts."""
    build_library(module, target, folder / LIBRARY, objects)
    facts = {"threads": target_threads(target), "inputs": inputs_of(module)}
    write_atomically(folder / FACTS, orjson.dumps(facts))


def inputs_of(module: tvm.IRModule) -> list[dict[str, object]]:
    """Return name, dtype and shape of each input of ``main``."""
    return [
        {
            "name": str(parameter.name),
            "dtype": str(parameter.ty.dtype),
            "shape": [int(extent) for extent in parameter.ty.shape.values],
        }
        for parameter in module["main"].params
    ]


def write_runner(folder: Path) -> None:
    """Write ``run.py``, which loads the library with the threads that it was compiled for."""
    write_atomically(folder / RUNNER, (Path(__file__).parents[1] / "run_network.py").read_bytes())
