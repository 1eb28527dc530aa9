"""Workloads to tune: TVM's test workloads and network layers by name, or a user's Python file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import te
from tvm.s_tir.meta_schedule.testing import te_workload

from toolkit.errors import LiveError, did_you_mean
from toolkit.live.measure.machine import tvm_says
from toolkit.live.space.programs import entry_arguments
from toolkit.live.workloads.layers import LAYERS


@dataclass(frozen=True, slots=True)
class Workload:
    """A name and a module whose entry function is ``main``."""

    name: str
    module: tvm.IRModule


def parse_workload(text: str) -> list[Workload]:
    """Resolve ``NAME:ARGUMENTS`` (``matmul:128,128,128``), ``SET:INDEX`` (``GMM:0``) or a file.

    A file is ``path.py`` or ``path.py:name``; see ``from_file``. Raises ``LiveError`` with similar
    names if there is no such workload.
    """
    head, _, tail = text.partition(":")
    if head.endswith(".py"):
        listed = list(from_file(Path(head)))
        found = [workload for workload in listed if not tail or workload.name == tail]
        if not found:
            cure = did_you_mean(tail, (workload.name for workload in listed))
            raise LiveError(f"no workload is called {tail!r}", where=Path(head), cure=cure)
        return found
    functions: dict[str, Callable[..., Any]] = LAYERS | {
        name: function
        for name, function in vars(te_workload).items()
        if inspect.isfunction(function) and function.__module__ == te_workload.__name__
    }
    sets = te_workload.CONFIGS
    if head in functions:
        return [Workload(text, _from_function(functions[head], _numbers(tail, text), text))]
    if head in sets:
        function, arguments = sets[head]
        chosen = _numbers(tail, text) if tail else range(len(arguments))
        if not chosen or any(not 0 <= index < len(arguments) for index in chosen):
            raise LiveError(f"{head} has workloads numbered 0 to {len(arguments) - 1} only")
        return [
            Workload(f"{head}:{index}", _from_function(function, arguments[index], text))
            for index in chosen
        ]
    raise LiveError(f"no workload is called {head!r}", cure=did_you_mean(head, [*functions, *sets]))


def _numbers(text: str, whole: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(",") if part.strip())
    except ValueError:
        raise LiveError(
            f"the arguments of {whole!r} must be integers", cure="example: matmul:128,128,128"
        ) from None


def _from_function(function: Callable[..., Any], arguments: Any, text: str) -> tvm.IRModule:
    names = ", ".join(inspect.signature(function).parameters)
    cure = f"its arguments are {names}"
    try:
        module = as_module(function(*arguments))
    except Exception as error:  # TVM's errors have no type in common
        raise LiveError(f"{text!r}: {tvm_says(error)[:200]}", cure=cure) from None
    return _sound(module, text, cure)


def _sound(module: tvm.IRModule, text: str, cure: str | None = None) -> tvm.IRModule:
    """Refuse tensors without elements; return the module."""
    if any(isinstance(function, tvm.relax.Function) for function in module.functions.values()):
        return module  # the tasks of a network are found later
    try:
        shapes = [shape for _, _, shape in entry_arguments(module, as_timed=False)]
    except Exception:  # TVM's errors have no type in common
        raise LiveError(f"{text!r} has no 'main' with tensors of known shapes", cure=cure) from None
    for shape in shapes:
        if min(shape, default=1) < 1:
            raise LiveError(f"{text!r} has a tensor of the shape {list(shape)}", cure=cure)
    return module


def as_module(value: Any) -> tvm.IRModule:
    """Return a module, made of tensors (inputs first), a PrimFunc, or a module with ``main``."""
    if isinstance(value, tvm.IRModule):
        return value
    if isinstance(value, tvm.tirx.PrimFunc):
        return tvm.IRModule({"main": value})
    return tvm.IRModule({"main": te.create_prim_func(list(value))})


def from_file(path: Path) -> Iterator[Workload]:
    """Read a Python file that defines ``WORKLOADS``, a dict from name to workload.

    A workload is a ``PrimFunc``, an ``IRModule`` with ``main``, a list of ``te`` tensors (inputs
    first), or a function without arguments that returns one of these.
    """
    if not path.is_file():
        raise LiveError("there is no such file", where=path)
    spec = importlib.util.spec_from_file_location(f"_workloads_of_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # TVMScript looks up the module to read the source of decorated functions.
    sys.modules[spec.name] = module
    with _told(path):
        spec.loader.exec_module(module)
    workloads = getattr(module, "WORKLOADS", None)
    if not isinstance(workloads, dict) or not workloads:
        raise LiveError(
            "the file defines no workloads",
            where=path,
            cure='define WORKLOADS = {"name": function_that_returns_tensors_or_a_PrimFunc}',
        )
    for name, value in workloads.items():
        with _told(path):
            made = as_module(value() if inspect.isfunction(value) else value)
        yield Workload(str(name), _sound(made, str(name)))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn errors of a user's file of workloads into ``LiveError``, even if it exits."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = (str(error).strip() or "no message").splitlines()[-1]
        raise LiveError(f"{type(error).__name__}: {said[:300]}", where=path) from None
