"""Traces as JSON and scheduled modules: only this module applies traces.

Source: TVM 0.27 ``s_tir/schedule/trace.py`` and ``s_tir/meta_schedule/arg_info.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import tvm
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.schedule import Trace

from toolkit.errors import LiveError
from toolkit.live.measure.machine import tvm_says
from toolkit.live.measure.program import Program
from toolkit.records import content_id


def plain(value: Any) -> Any:
    """Return TVM's arrays, strings and integers as Python's own types."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "value"):
        return value.value
    return [plain(item) for item in value]


def trace_json(trace: Trace) -> list[Any]:
    """Return a trace as ``[instructions, decisions]`` in Python's own types."""
    answer: list[Any] = plain(trace.as_json())
    return answer


def decisions_of(schedule: Schedule, positions: Iterable[int]) -> list[list[Any]]:
    """Return a schedule's decisions at these instructions, in the form of ``trace_json``.

    Converting the whole trace to JSON would take most of the time of a draw.
    """
    trace = schedule.trace
    instructions, decided = trace.insts, trace.decisions
    return [[position, plain(decided[instructions[position]])] for position in positions]


def entry_arguments(module: tvm.IRModule, *, as_timed: bool) -> list[Any]:
    """Return ``[["TENSOR", dtype, shape], ...]`` of the entry function.

    With ``as_timed`` weights have the shape that the schedule's layout rewrite gives them.
    """
    infos = ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=as_timed)
    return [plain(info.as_json()) for info in infos]


def operations(module: tvm.IRModule) -> float | None:
    """Return the floating-point operations of a module; ``None``: none, or TVM cannot count."""
    try:
        return float(estimate_tir_flops(module)) or None
    except tvm.error.InternalError:  # an expression that TVM cannot count
        return None


def count_inputs(module: tvm.IRModule) -> int:
    """Return the number of leading arguments of the entry function that are only read."""
    function = module["main"]
    written: list[Any] = []
    pending: list[Any] = [function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, SBlock):
            written.extend(region.source for region in node.writes)
        for part in ("block", "body", "init", "then_case", "else_case"):
            child = getattr(node, part, None)
            if child is not None:
                pending.append(child)
        pending.extend(getattr(node, "seq", ()))
    for position, parameter in enumerate(function.params):
        if any(parameter.same_as(variable) for variable in written):
            return position
    return len(function.params)


def load_workload(line: str) -> tvm.IRModule:
    """Return the module of a line of ``database_workload.json``.

    Raises ``LiveError`` when this TVM cannot load it.
    """
    try:
        return ms.database.Workload.from_json(orjson.loads(line)).mod
    except Exception as error:
        raise LiveError(
            f"TVM {tvm.__version__} cannot load this workload: {tvm_says(error)[:160]}",
            cure="only the TVM that wrote it can rebuild it; training and replays do not need that",
        ) from None


def replay_trace(module: tvm.IRModule, trace: list[Any]) -> Schedule | None:
    """Apply a trace, ``[instructions, decisions]``; ``None`` when TVM refuses it."""
    instructions, decisions = trace
    if not all(0 <= position < len(instructions) for position, _ in decisions):
        return None  # with such a trace, TVM would end the process
    schedule = Schedule(module, debug_mask="none")
    try:
        Trace.apply_json_to_schedule(trace, schedule)
    except Exception:
        # TVM raises several kinds for a trace that does not fit the module.
        return None
    return schedule


def timed_program(schedule: Schedule, inputs: int) -> Program:
    """Return the program in the form that is timed."""
    text = str(tvm.ir.save_json(schedule.mod))
    arguments = entry_arguments(schedule.mod, as_timed=True)
    return Program(content_id(text), text, arguments, inputs)


def checked_program(module: tvm.IRModule, inputs: int) -> Program:
    """Return the program with the workload's own arguments, for comparing outputs."""
    text = str(tvm.ir.save_json(module))
    return Program(content_id("check", text), text, entry_arguments(module, as_timed=False), inputs)
