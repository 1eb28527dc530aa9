"""Measure a database's winners again: which of them still hold on this machine?

A winner was chosen on one machine, on one day, with one compiler. This module rebuilds the best
records of each workload and measures them in turns (``toolkit.live.tune.finalists``). It compares
the winner's outputs with those of the unscheduled program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.confirm.rules import trimmed_interval
from toolkit.live.measure import machine
from toolkit.live.measure.device import Device
from toolkit.live.measure.fingerprint import differences, machine_fingerprint
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import no_verdict, slowed_by
from toolkit.live.space.database import read_collection
from toolkit.live.space.intrinsics import load_intrinsics
from toolkit.live.space.programs import (
    checked_program,
    count_inputs,
    load_workload,
    replay_trace,
    timed_program,
)
from toolkit.live.space.stored import StoredRecord, read_database
from toolkit.live.tune.finalists import Standing, hold_heats, rounds_here
from toolkit.locks import writing
from toolkit.progress import SILENT, Progress
from toolkit.records import MACHINE_FINGERPRINT, TrialState
from toolkit.results import Result

AUDIT_FILE = "audit.json"

TOP = 4
"""Number of best records that are measured for each workload, the winner included."""

MARGIN = 0.05
"""A record beats the winner when it is proven to be faster by more than this share."""

SLOWER = 1.25
"""A winner is "slower" when its slowdown is more than so many times that of all winners."""

CONFIDENCE = 0.95

_OF_PROTOCOL = ("number", "repeat", "min_repeat_ms", "cache_flush")

Finding = Literal["holds", "beaten", "slower", "fails", "unknown"]


@dataclass(frozen=True, repr=False)
class AuditedWinner(Result):
    """The audit of one workload's winner.

    Attributes
    ----------
    line
        The winner's line in ``database_tuning_record.json``, from 1.
    recorded_s, now_s
        The winner's latency in the database, and its latency now; seconds.
    better_line, ratio, interval
        The line of the record that beats the winner, its latency over the winner's, and the 95 %
        interval of that ratio.
    why
        What failed, why there is no finding, or why the outputs were not compared.
    """

    name: str
    finding: Finding
    records: int
    line: int | None = None
    recorded_s: float | None = None
    now_s: float | None = None
    better_line: int | None = None
    ratio: float | None = None
    interval: list[float] | None = None
    why: str | None = None


@dataclass(frozen=True, repr=False)
class Audit(Result):
    """The content of ``audit.json``, written after each workload.

    ``unread`` is the number of workloads that an interrupted audit did not reach. ``slowed_by`` is
    the winners' latency now over their recorded latency (median). ``differs`` lists the facts in
    which this machine differs from the one that measured the database.
    """

    database: str
    winners: list[AuditedWinner]
    holds: int
    lost: int
    unknown: int
    unread: int
    slowed_by: float | None
    differs: list[str]
    machine: dict[str, Any]
    machine_fingerprint: dict[str, Any]
    warnings: list[str]


def audit(
    database: Path,
    *,
    top: int = TOP,
    margin: float = MARGIN,
    cores: Sequence[int] = (),
    seed: int = 0,
    progress: Progress = SILENT,
) -> Audit:
    """Measure the winners of a MetaSchedule database again; write ``audit.json`` into its folder.

    ``audit.json`` is written after each workload: an interrupted audit keeps its findings. The
    protocol is that of the database's ``collection.json``, if it has one.

    Raises
    ------
    LiveError
        When the folder holds no database, or no successful record.
    """
    workloads, records = _read(database)
    about = read_collection(database)
    winners: list[AuditedWinner] = []
    read_s: dict[str, float] = {}
    readings_s: dict[str, list[float]] = {}
    measured = sorted(records)
    first = records[measured[0]][0].target
    noise = machine.noise_warnings(machine.target_threads(first))
    here = machine_fingerprint(first)
    before = about.get(MACHINE_FINGERPRINT) or {}
    differs = differences(before, here) if before else []
    label = "read winners again"
    with writing(database), progress.step(label, float(len(measured))) as step:
        for index in measured:
            name = _name(about, index)
            target = records[index][0].target
            protocol = _protocol(about, target, cores)
            rng = np.random.default_rng([seed, index])
            near = [one for one in records[index] if one.target == target][:top]
            workload = workloads[index] if index < len(workloads) else None
            one, standing = _read_again(
                name, workload, near, len(records[index]), protocol, margin, rng
            )
            winners.append(one)
            if one.recorded_s is not None and (again := standing.seconds.get(str(one.line))):
                read_s[str(index)], readings_s[str(index)] = one.recorded_s, again
            factor = slowed_by(read_s, readings_s)
            found = [_beside(winner, factor) for winner in winners]
            counts = [winner.finding for winner in found]
            warnings = list(noise)
            if differs:
                warnings.append(
                    f"the database was measured on a machine with other {', '.join(differs)}"
                )
            if nothing := no_verdict(factor):
                warnings.append(nothing)
            result = Audit(
                database=str(database),
                winners=found,
                holds=counts.count("holds"),
                lost=len(counts) - counts.count("holds") - counts.count("unknown"),
                unknown=counts.count("unknown"),
                unread=len(measured) - len(winners),
                slowed_by=factor,
                differs=differs,
                machine=machine.describe_machine(),
                machine_fingerprint=here,
                warnings=warnings,
            )
            content = orjson.dumps(result.to_json(), option=orjson.OPT_INDENT_2)
            write_atomically(database / AUDIT_FILE, content)
            step.advance(note=name)
    return result


def _read_again(
    name: str,
    workload: str | None,
    near: Sequence[StoredRecord],
    count: int,
    protocol: Protocol,
    margin: float,
    rng: np.random.Generator,
) -> tuple[AuditedWinner, Standing]:
    """Judge one workload's winner, the first of ``near``."""
    winner, line = near[0], str(near[0].line)
    said = AuditedWinner(name, "unknown", count, winner.line, winner.seconds)
    try:
        if workload is None:
            raise LiveError("the line of its workload is missing in database_workload.json")
        module = load_workload(workload)
    except LiveError as error:
        return replace(said, why=error.what), Standing()
    load_intrinsics(winner.target)
    inputs = count_inputs(module)
    made = {str(one.line): replay_trace(module, one.trace) for one in near}
    programs = {n: timed_program(s, inputs) for n, s in made.items() if s is not None}
    first = made[line]
    if first is None:
        return replace(said, finding="fails", why="TVM refuses its schedule"), Standing()
    with rounds_here(programs, winner.target, protocol, rng) as read:
        standing = hold_heats(list(programs), read)
    failed, unchecked = standing.failed.get(line), None
    if failed is None:
        with Device(winner.target, protocol) as device:
            reference = device.set_reference(checked_program(module, inputs))
            if reference.state is TrialState.OK:
                answer = device.check(checked_program(first.mod, inputs))
                failed = None if answer.state is TrialState.OK else answer
            else:
                unchecked = f"outputs not checked: {reference.error or reference.state.value}"
    own = standing.seconds.get(line)
    said = replace(said, now_s=float(np.median(own)) if own else None)
    if failed is not None:
        return replace(said, finding="fails", why=failed.error or failed.state.value), standing
    return replace(said, **_beaten(standing, line, margin), why=unchecked), standing


def _beaten(standing: Standing, winner: str, margin: float) -> dict[str, Any]:
    """Return the finding: is the best other record proven faster by more than the margin?"""
    best = next((name for name in standing.order if name != winner), None)
    if best is None:
        return {"finding": "holds"}
    pairs = zip(standing.seconds[best], standing.seconds[winner], strict=False)
    logs = np.log([own / other for own, other in pairs])
    centre, low, high = trimmed_interval(logs, CONFIDENCE)
    if high >= -math.log1p(margin):
        return {"finding": "holds"}
    return {
        "finding": "beaten",
        "better_line": int(best),
        "ratio": math.exp(centre),
        "interval": [math.exp(low), math.exp(high)],
    }


def _beside(one: AuditedWinner, factor: float | None) -> AuditedWinner:
    """Mark a winner as slower when it slowed down more than the winners did in general."""
    if one.finding != "holds" or factor is None or one.now_s is None or one.recorded_s is None:
        return one
    ratio = one.now_s / one.recorded_s
    if ratio <= SLOWER * max(factor, 1.0):
        return one
    why = f"it takes {ratio:.2f} times its recorded time, all winners {factor:.2f} times (median)"
    return replace(one, finding="slower", why=why)


def _read(database: Path) -> tuple[list[str], dict[int, list[StoredRecord]]]:
    """Return the workload lines, and the successful records by workload, fastest first."""
    workloads, records = read_database(database)
    found: dict[int, list[StoredRecord]] = {}
    for record in records:
        if math.isfinite(record.seconds) and _is_target(record.target):
            found.setdefault(record.workload, []).append(record)
    if not found:
        raise LiveError(
            "the database holds no successful record for a readable target",
            where=database,
            cure="run 'toolkit tune' with this folder as --out, or name another folder",
        )
    for own in found.values():
        own.sort(key=lambda one: one.seconds)
    return workloads, found


def _is_target(text: str) -> bool:
    """Return whether a target's kind and threads can be read; other records are left out."""
    try:
        machine.runs_on_cpu(text)
        machine.target_threads(text)
    except (ValueError, TypeError, LookupError):
        return False
    return True


def _name(about: Mapping[str, Any], index: int) -> str:
    told = about.get("tasks")
    for task in told if isinstance(told, list) else []:
        if isinstance(task, dict) and task.get("workload_index") == index and task.get("name"):
            return str(task["name"])
    return f"workload {index}"


def _protocol(about: Mapping[str, Any], target: str, cores: Sequence[int]) -> Protocol:
    """Return the database's protocol, with the target's threads, on these processors."""
    told = about.get("protocol")
    told = told if isinstance(told, dict) else {}
    kept = {name: told[name] for name in _OF_PROTOCOL if isinstance(told.get(name), int)}
    return Protocol(**kept, threads=machine.target_threads(target), cores=tuple(cores))
