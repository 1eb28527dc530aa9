"""The tasks of what is to be tuned: a workload is one, a network has several with weights."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import tvm
from tvm.s_tir import meta_schedule as ms

from toolkit.errors import LiveError
from toolkit.live.space.database import workload_line
from toolkit.live.space.intrinsics import load_intrinsics
from toolkit.live.tune.workloads import Workload, parse_workload

_EXTRAS = {".onnx": "onnx", ".pt2": "torch"}


@dataclass(frozen=True, slots=True)
class TuneTask:
    """One task: its module (entry ``main``) and how often the network runs it."""

    name: str
    module: tvm.IRModule
    weight: float = 1.0


def tasks_of(texts: Sequence[str], target: str) -> list[TuneTask]:
    """Resolve workloads, Python files and networks into distinct tasks.

    A text is what ``toolkit collect`` takes, a ``.onnx`` file, or a ``.pt2`` file (what
    ``torch.export.save`` writes). A module with Relax functions is a network: its tasks are those
    that TVM extracts from it, with the number of times that each is called as weight. Equal tasks
    become one whose weight is the sum.

    Raises
    ------
    LiveError
        For a file that cannot be read, an extra that is not installed, or a network without tasks.
    """
    found: dict[str, TuneTask] = {}
    for text in texts:
        if Path(text).suffix in _EXTRAS:
            listed = network_tasks(load_network(Path(text)), target, Path(text).stem)
        else:
            listed = [task for each in parse_workload(text) for task in _tasks(each, target)]
        for task in listed:
            key = str(orjson.loads(workload_line(task.module))[0])
            before = found.get(key)
            weight = task.weight + (0.0 if before is None else before.weight)
            found[key] = TuneTask(task.name if before is None else before.name, task.module, weight)
    return list(found.values())


def _tasks(workload: Workload, target: str) -> list[TuneTask]:
    if any(
        isinstance(function, tvm.relax.Function) for function in workload.module.functions.values()
    ):
        return network_tasks(workload.module, target, workload.name)
    return [TuneTask(workload.name, workload.module)]


def network_tasks(module: tvm.IRModule, target: str, name: str) -> list[TuneTask]:
    """Tasks of a Relax module as ``compile_relax`` will look them up.

    Source: TVM 0.27 ``meta_schedule/relax_integration.py``, whose ``compile_relax`` legalises and
    fuses by the same passes before it asks the database.
    """
    from tvm import relax

    load_intrinsics()
    made = tvm.target.Target(orjson.loads(target) if target.lstrip()[:1] == "{" else target)
    passes: list[Any] = []
    with contextlib.suppress(ValueError, AttributeError):
        passes += relax.pipeline.library_dispatch_passes(made)
    passes += [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    try:
        with made:
            fused = tvm.transform.Sequential(passes)(module)
        extracted = ms.relax_integration.extract_tasks(fused, made)
    except Exception as error:
        raise LiveError(
            f"TVM cannot lower the network {name!r}: {str(error).strip().splitlines()[-1][:200]}",
            cure="its shapes must be known: relax.transform.BindSymbolicVars binds dynamic ones",
        ) from None
    tasks = [
        TuneTask(f"{name}:{task.task_name}", task.dispatched[0], float(task.weight))
        for task in extracted
        if not (task.mod.attrs and task.mod.attrs.get("tirx.is_scheduled", False))
    ]
    if not tasks:
        raise LiveError(f"TVM extracts no tasks from {name!r}", cure="does it have a 'main'?")
    return tasks


def load_network(path: Path) -> tvm.IRModule:
    """Import an ONNX file or an exported PyTorch program as a Relax module.

    Weights become parameters of ``main``: their values do not matter to tuning.
    """
    if not path.is_file():
        raise LiveError("there is no such file", where=path)
    extra = _EXTRAS[path.suffix]
    try:
        if extra == "onnx":
            onnx = importlib.import_module("onnx")
            from tvm.relax.frontend.onnx import from_onnx

            module = from_onnx(onnx.load(str(path)), keep_params_in_input=True)
        else:
            torch = importlib.import_module("torch")
            from tvm.relax.frontend.torch import from_exported_program

            module = from_exported_program(torch.export.load(str(path)))
    except ImportError as error:
        raise LiveError(
            f"reading it needs {extra}: {error}",
            where=path,
            cure=f"install it: pip install 'tvm-tuning-toolkit[{extra}]'",
        ) from None
    except Exception as error:
        raise LiveError(
            f"TVM cannot import it: {type(error).__name__}: {str(error).strip()[-200:]}", where=path
        ) from None
    if extra == "onnx":
        module, _ = tvm.relax.frontend.detach_params(module)
    return module
