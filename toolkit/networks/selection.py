"""Chooses programs by their time inside the network, function by function.

A search measures a program many times in a row, with its weights in the nearest cache. In the
network, other functions run in between, and the program that is fastest alone may take twice as
long. So the whole network is built several times: first with the best program of every function,
then with the second best, and so on. The builds run in turns, and TVM's instrument measures each
function. Each function then gets the program that was fastest in the network.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from toolkit.live.measure.machine import target_threads, tvm_target
from toolkit.live.space.database import workload_line
from toolkit.live.space.programs import replay_trace
from toolkit.live.space.quiet import quiet
from toolkit.live.space.stored import StoredRecord, read_database
from toolkit.networks.codegen.library import LIBRARY, write_network
from toolkit.networks.codegen.objects import ObjectFiles
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.kernels import function_of, profile
from toolkit.progress import Step

NEAR = 1.25
"""Programs that are slower alone than the best one by more than this factor are not tried."""

MOST = 8
"""Programs that are tried for each function, if there is time."""

BUILD_SHARE = 0.6
"""Share of the time in which builds may start; the rest is for measuring them."""

MEMORY_SHARE = 0.25
"""Share of the free memory that the builds may take together."""

LEAST_GAIN = 0.03
"""Share by which a program must be faster in the network than the program that is best alone."""

Traced = tuple[tvm.IRModule, Trace]
"""A workload and a trace of it."""


@dataclass
class RecordChoice:
    """Records of a network's functions, fastest alone first, and the chosen position of each.

    A record is applied when it is first called; ``None``: TVM refuses it. ``failed``: functions of
    which all measured programs failed. ``unmeasured``: by function without records, its workload
    and the trace that is used for it (``add_first_picks``).
    """

    records: dict[str, list[Callable[[], Traced | None]]]
    chosen: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    unmeasured: dict[str, Traced] = field(default_factory=dict)

    def program_of(self, name: str) -> Traced | None:
        """Return a function's workload and the chosen trace, or the next trace that TVM accepts."""
        left = (applied() for applied in self.records[name][self.chosen[name] :])
        return next(filter(None, left), None)


def read_records(graph: Graph, database: Path | None, target: str) -> RecordChoice:
    """Look up the best records of a network's functions; there are none without a database.

    Raises
    ------
    LiveError
        When the folder holds no database.
    """
    choice = RecordChoice({})
    if database is None:
        return choice
    lines, stored = read_database(database)
    measured: dict[str, list[StoredRecord]] = {}
    for record in stored:
        if record.workload < len(lines):
            measured.setdefault(_hash_in(lines[record.workload]), []).append(record)
    with quiet():
        tasks = ms.relax_integration.extract_tasks(graph.module, tvm_target(target))
    for task in tasks:
        module = task.dispatched[0]
        found = measured.get(_hash_in(workload_line(module)), [])
        fastest = sorted(found, key=lambda one: one.seconds)
        if not fastest:
            continue
        name, most_s = str(task.task_name), NEAR * fastest[0].seconds
        if math.isinf(most_s):
            choice.failed.append(name)
            continue
        near = [one.trace for one in fastest[:MOST] if one.seconds <= most_s]
        choice.records[name] = [cache(partial(_applied, module, trace)) for trace in near]
        choice.chosen[name] = 0
    return choice


def _hash_in(line: str) -> str:
    """Return the hash of a workload, with which its line in a database begins."""
    return line[: line.find(",")].strip('[ "')


def _applied(module: tvm.IRModule, trace: Any) -> Traced | None:
    schedule = replay_trace(module, trace)
    return None if schedule is None else (module, schedule.trace)


def scheduled(graph: Graph, selection: RecordChoice, target: str) -> tvm.IRModule:
    """Schedule a network's functions with the chosen records and the unmeasured programs."""
    chosen, made = ms.database.MemoryDatabase(), tvm_target(target)
    taken = map(selection.program_of, selection.chosen)
    for task, trace in [*filter(None, taken), *selection.unmeasured.values()]:
        workload = chosen.commit_workload(task)
        arguments = ms.arg_info.ArgInfo.from_prim_func(task["main"])
        # It is the only record of its workload, so its run time does not matter.
        chosen.commit_tuning_record(
            ms.database.TuningRecord(trace, workload, [1.0], made, arguments)
        )
    with made, chosen, quiet():
        return relax.transform.MetaScheduleApplyDatabase()(graph.module)


def choose_in_network(
    graph: Graph,
    selection: RecordChoice,
    target: str,
    seconds: float,
    objects: ObjectFiles,
    step: Step,
) -> None:
    """Try as many records in the network as time allows; choose the fastest for each function.

    All builds come first. Then the builds are measured in turns, a moment each. If they do not
    run, or no function has two records, the choice does not change.
    """
    begun, longest = time.perf_counter(), 0.0
    most = max(map(len, selection.records.values()), default=0)
    if most < 2:
        return
    free = psutil.virtual_memory().available
    # By function and position: a tried record's time in the network over that of the first record.
    ratios: dict[str, dict[int, float]] = {}
    with TemporaryDirectory() as directory:
        builds: list[tuple[dict[str, int], Path]] = []
        for position in range(most):
            at = time.perf_counter()
            if position > 1 and at - begun + longest > BUILD_SHARE * seconds:
                break
            tried = {
                name: position if position < len(records) else 0
                for name, records in selection.records.items()
            }
            folder = Path(directory) / str(position)
            folder.mkdir()
            module = scheduled(graph, replace(selection, chosen=tried), target)
            write_network(module, target, folder, objects)
            builds.append((tried, folder))
            longest = max(longest, time.perf_counter() - at)
            step.advance(note=f"{position + 1} of {most} programs a function")
            if (len(builds) + 1) * (folder / LIBRARY).stat().st_size > MEMORY_SHARE * free:
                break
        left = max(seconds - (time.perf_counter() - begun), 0.0)
        read = profile([folder for _, folder in builds], target_threads(target), left)
        for (tried, _), rows in zip(builds, read, strict=False):
            for row in rows:
                name = function_of(row["kernel"])
                if name in tried and row["ratio"] is not None:
                    # A first record that is built several times counts once.
                    ratios.setdefault(name, {}).setdefault(tried[name], row["ratio"])
    for name, found in ratios.items():
        best = min(found, key=found.__getitem__)
        if found[best] < 1 - LEAST_GAIN:
            selection.chosen[name] = best
