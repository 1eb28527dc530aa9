"""The tasks to tune: a workload is one task, a network has several tasks with weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
from tvm.s_tir import meta_schedule as ms

from toolkit.errors import LiveError
from toolkit.live.measure.machine import tvm_target
from toolkit.live.space.database import workload_line
from toolkit.live.space.intrinsics import load_intrinsics
from toolkit.live.tune.tasks import TuneTask
from toolkit.live.workloads.named import parse_workload
from toolkit.networks.codegen.library import is_task
from toolkit.networks.graph.functions import relax_functions
from toolkit.networks.graph.prepare import CACHE_BYTES, Graph, Layout, prepare
from toolkit.networks.importing.files import is_model_file, load_model


def tasks_of(
    texts: Sequence[str],
    target: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    layout: Layout = "auto",
    tolerance: float = 0.0,
) -> list[TuneTask]:
    """Resolve workloads, Python files and networks into distinct tasks.

    A text is a workload of ``toolkit collect`` or a model file (``networks.importing.files``). The
    tasks of a network are those that TVM extracts from its prepared graph. The weight of a task is
    the number of its calls. Equal tasks become one, with the sum of their weights. For networks
    only: ``shapes`` of dynamic inputs, the ``layout`` of convolutions, and ``tolerance``, the
    allowed error of the outputs (``networks.graph.prepare``).

    Raises
    ------
    LiveError
        For a file that cannot be read, an extra that is not installed, or a network without tasks.
    """
    found: dict[str, TuneTask] = {}
    for named in (one for text in texts for one in _named(text, target, shapes, layout, tolerance)):
        for task in network_tasks(named, target) if isinstance(named, Graph) else [named]:
            key = str(orjson.loads(workload_line(task.module))[0])
            if before := found.get(key):
                task = replace(
                    before,
                    weight=before.weight + task.weight,
                    network=before.network or task.network,
                    cold=before.cold or task.cold,
                )
            found[key] = task
    return list(found.values())


def network_of(
    text: str,
    target: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    layout: Layout = "auto",
    tolerance: float = 0.0,
) -> Graph:
    """Load and prepare one network: a model file, or a Relax module of a Python file."""
    for named in _named(text, target, shapes, layout, tolerance):
        if isinstance(named, Graph):
            return named
    raise LiveError(
        f"{text!r} is not a network",
        cure="give an .onnx or .pt2 file, or a Python file whose WORKLOADS holds a Relax module",
    )


def _named(
    text: str,
    target: str,
    shapes: Mapping[str, Sequence[int]] | None,
    layout: Layout,
    tolerance: float,
) -> Iterator[Graph | TuneTask]:
    """Yield the networks and the workloads that a text names."""
    if is_model_file(text):
        yield prepare(load_model(Path(text), shapes), target, Path(text).stem, layout, tolerance)
        return
    for one in parse_workload(text):
        if relax_functions(one.module):
            yield prepare(one.module, target, one.name, layout, tolerance)
        else:
            yield TuneTask(one.name, one.module)


def network_tasks(graph: Graph, target: str) -> list[TuneTask]:
    """List the tasks of a prepared network, as the compiler looks them up."""
    load_intrinsics(target)
    try:
        extracted = ms.relax_integration.extract_tasks(graph.module, tvm_target(target))
    except Exception as error:  # TVM's errors have no common type
        raise LiveError(
            f"TVM extracts no tasks from {graph.name!r}: {str(error).strip()[-200:]}",
            cure="it needs a 'main'",
        ) from None
    tasks, cold = [], graph.weight_bytes > CACHE_BYTES
    for task in extracted:
        module = task.dispatched[0]
        if is_task(module["main"]):
            name = f"{graph.name}:{task.task_name}"
            tasks.append(TuneTask(name, module, float(task.weight), network=True, cold=cold))
    if not tasks:
        raise LiveError(f"TVM extracts no tasks from {graph.name!r}", cure="it needs a 'main'")
    return tasks
