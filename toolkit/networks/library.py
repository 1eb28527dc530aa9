"""Compiles a prepared network with a database into a library, and says what was tuned in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson
import tvm
from tvm import relax

from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.space.quiet import quiet
from toolkit.networks.graph import Graph

LIBRARY, FACTS, RUNNER = "network.so", "network.json", "run.py"


@dataclass(frozen=True)
class Coverage:
    """Which functions of a network use a tuned record, and which do not, by name."""

    tuned: list[str]
    untuned: list[str]


def apply_database(
    graph: Graph, database: Path | None, target: str
) -> tuple[tvm.IRModule, Coverage]:
    """Schedule a network's functions with the fastest records of a database.

    Reshapes do not count as functions: the compiler makes views of them.

    Raises
    ------
    LiveError
        When the folder holds no database.
    """
    module = graph.module
    if database is not None:
        if not (database / "database_workload.json").is_file():
            raise LiveError(
                "it holds no MetaSchedule database",
                where=database,
                cure="tune the network first: toolkit tune --workload NETWORK",
            )
        with tvm.target.Target(orjson.loads(target)), quiet():
            module = relax.transform.MetaScheduleApplyDatabase(str(database))(module)
    tuned: list[str] = []
    untuned: list[str] = []
    for name, function in graph.module.functions.items():
        if isinstance(function, relax.Function) or relax.analysis.has_reshape_pattern(function):
            continue
        applied = module[name.name_hint]
        scheduled = bool(applied.attrs and applied.attrs.get("tirx.is_scheduled", False))
        (tuned if scheduled else untuned).append(str(name.name_hint))
    return module, Coverage(sorted(tuned), sorted(untuned))


def build_library(module: tvm.IRModule, target: str, path: Path) -> None:
    """Pack the weights as the schedules want them, compile, and write one shared library.

    Raises
    ------
    LiveError
        When TVM cannot compile it, or there is no C++ compiler to link with.
    """
    made = tvm.target.Target(orjson.loads(target))
    t = relax.transform
    packing = [t.SplitLayoutRewritePreproc(), t.LiftTransformParams(), t.FoldConstant()]
    try:
        with made, quiet():
            packed = tvm.transform.Sequential(packing)(module)
            executable = tvm.compile(packed, target=made)
            unfinished = path.with_suffix(".part.so")
            executable.export_library(str(unfinished))
    except Exception as error:  # TVM's errors have no type in common
        said = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise LiveError(
            f"TVM cannot compile the network: {said[:200]}",
            cure="is a C++ compiler installed (g++ or clang++)? TVM links libraries with it",
        ) from None
    unfinished.replace(path)


def inputs_of(module: tvm.IRModule) -> list[dict[str, object]]:
    """Inputs of ``main``: name, dtype and shape of each."""
    return [
        {
            "name": str(parameter.name),
            "dtype": str(parameter.ty.dtype),
            "shape": [int(extent) for extent in parameter.ty.shape.values],
        }
        for parameter in module["main"].params
    ]


def write_runner(folder: Path) -> None:
    """Write ``run.py`` beside the library: loads it with the threads that it was compiled for."""
    write_atomically(folder / RUNNER, Path(__file__).with_name("run_network.py").read_bytes())
