"""Measure new logs on this machine: random programs, small spaces as a whole, all mutations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit.errors import LiveError
from toolkit.live.measure.engines import open_engine
from toolkit.live.measure.fingerprint import machine_fingerprint
from toolkit.live.measure.machine import describe_machine
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.choices import choices, without_postprocessors
from toolkit.live.space.database import DatabaseWriter, read_collection
from toolkit.live.space.design import DesignSpace, design_key
from toolkit.live.space.oracle import Engine
from toolkit.live.space.programs import entry_arguments, timed_program, trace_json
from toolkit.live.workloads.named import Workload
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress, Step
from toolkit.records import TrialState
from toolkit.workspace import folder_name

TOGETHER = 32
"""Programs that are built at the same time and then measured, before the next ones are made."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure for each workload.

    Attributes
    ----------
    trials
        Distinct random programs (sketches drawn uniformly); 0 for none.
    mutated
        Number of these that are also mutated in every direction; each mutant is measured once (Han
        et al. 2025, section 3.2: collection of labels).
    enumerate_up_to
        A space of at most so many programs is measured completely instead; 0: never.
    occasions
        How often each program is measured, in separate passes over all workloads, each pass in its
        own order (mutants of ``mutated``: once).
    seed
        Seed of all random choices.
    refined
        Further generations, one entry each: the number of fastest programs so far, mutants
        included, that are mutated in every direction. No program is a parent twice. Such a record
        is dense near fast programs, like a search's record, and has random programs as well.
    """

    trials: int = 64
    mutated: int = 0
    enumerate_up_to: int = 0
    occasions: int = 1
    seed: int = 0
    refined: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Job:
    """A program (its sketch and its trace) that is to be measured, and where it comes from."""

    sketch: int
    chosen: list[Any]
    occasion: int = 0
    parent: bytes | None = None
    direction: str | None = None

    @property
    def key(self) -> bytes:
        return design_key(self.sketch, self.chosen)


@one_writer
def collect(
    workloads: Sequence[Workload],
    out: Path,
    *,
    target: str,
    protocol: Protocol,
    plan: Plan,
    machine: str | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Measure workloads into one MetaSchedule database each, below ``out``.

    Each occasion measures all workloads once, so that occasions are far apart in time: they show
    how much the machine changes, which occasions within a minute would not. A run continues an
    earlier run with the same plan. The same plan with more occasions measures the same programs
    again. Returns counts (JSON-ready).
    """
    found: dict[str, dict[str, Any]] = {}
    with open_engine(target, protocol) as device:
        for occasion in range(max(1, plan.occasions)):
            for workload in workloads:
                folder = out / folder_name(workload.name)
                space = DesignSpace(workload.module, target, seed=plan.seed + 1)
                title = workload.name + (f", occasion {occasion + 1}" if plan.occasions > 1 else "")
                with DatabaseWriter(folder, target) as writer:
                    collector = _Collector(workload, space, writer, device)
                    # Before the first reading, so that a log of an interrupted run is described.
                    collector.describe(plan, machine, None)
                    with progress.step(title) as step:
                        counts = collector.run(replace(plan, occasions=occasion + 1), step)
                    collector.describe(plan, machine, counts["space_size"])
                found[workload.name] = {"name": workload.name, "folder": str(folder), **counts}
    return {
        "out": str(out),
        "target": target,
        "workloads": list(found.values()),
        "records": sum(entry["records"] for entry in found.values()),
        "failed": sum(entry["failed"] for entry in found.values()),
    }


class _Collector:
    """The measurements of one workload."""

    def __init__(
        self, workload: Workload, space: DesignSpace, writer: DatabaseWriter, device: Engine
    ) -> None:
        self.name = workload.name
        self.space, self.writer, self.device = space, writer, device
        self.index = writer.workload_index(workload.module)
        # (program, occasion) → position of its record. Such programs are not measured again, and
        # a mutant's record names its parent's position.
        self.done: dict[tuple[bytes, int], int] = {}
        sketches = {self._skeleton(base): i for i, base in enumerate(space.bases)}
        for position, (record, trial) in enumerate(zip(writer.records, writer.trials, strict=True)):
            chosen = without_postprocessors(record[1][0])
            sketch = sketches.get(self._skeleton(chosen))
            # The user's file may now define another workload with this name and equal decisions.
            if sketch is not None and record[0] == self.index:
                self.done[design_key(sketch, chosen), trial["occasion"]] = position

    @staticmethod
    def _skeleton(trace: list[Any]) -> str:
        mutable = {c.position for c in choices(trace) if c.kind == "parallel"}
        kept = [i if p not in mutable else [i[0], i[2]] for p, i in enumerate(trace[0])]
        return repr(kept)

    def describe(self, plan: Plan, machine: str | None, space_size: int | None) -> None:
        facts, target = describe_machine(), str(self.space.target)
        task = {"workload_index": self.index, "name": self.name, "space_size": space_size}
        how = {"target": target, "protocol": self.device.protocol.to_dict()}
        self._refuse_another(orjson.loads(orjson.dumps(how)))
        self.writer.describe(
            {
                "machine": machine or facts["cpu"],
                "hardware": facts,
                "machine_fingerprint": machine_fingerprint(target),
                **how,
                "plan": asdict(plan),
                "tasks": [task],
            }
        )

    def _refuse_another(self, how: Mapping[str, Any]) -> None:
        """Raise ``LiveError`` if the folder's records were measured with other settings."""
        before = read_collection(self.writer.folder) if self.writer.records else {}
        told, now = before.get("protocol", {}), how["protocol"]
        other = ["target"] if before.get("target") not in (None, how["target"]) else []
        # An older log lacks settings that a later version added to the protocol.
        shared = [name for name in now if isinstance(told, dict) and name in told]
        other += [name for name in shared if told[name] != now[name]]
        if other:
            raise LiveError(
                f"the folder holds a log with another {', '.join(other)}",
                where=self.writer.folder,
                cure="give another --out, or the same options to continue this log",
            )

    def run(self, plan: Plan, step: Step) -> dict[str, Any]:
        rng = np.random.default_rng(plan.seed)
        # The order has its own generator: the programs must not depend on ``occasions``.
        order = np.random.default_rng([plan.seed, 1])
        whole = self.space.enumerate(plan.enumerate_up_to) if plan.enumerate_up_to else None
        if whole is None:
            drawn = self._sampled(plan.trials, rng)
        else:
            drawn = [_Job(design.sketch, design.chosen) for design in whole]

        def on_each_occasion(once: list[_Job]) -> list[_Job]:
            return [
                replace(once[index], occasion=occasion)
                for occasion in range(plan.occasions)
                for index in order.permutation(len(once))
            ]

        jobs = on_each_occasion(drawn)
        jobs += self._mutants(drawn[: plan.mutated], {job.key for job in drawn}, rng)
        self._measure_all(jobs, step)
        parents = {job.key for job in drawn[: plan.mutated]}
        for count in plan.refined:
            fastest = self._fastest(jobs, parents, count)
            parents |= {job.key for job in fastest}
            found = list(self._mutants(fastest, {job.key for job in jobs}, rng))
            mutants = on_each_occasion(found)
            self._measure_all(mutants, step)
            jobs += mutants
        failed = sum(trial["state"] != TrialState.OK.value for trial in self.writer.trials)
        return {
            "records": len(self.writer.records),
            "failed": failed,
            "space_size": None if whole is None else len(whole),
        }

    def _sampled(self, trials: int, rng: np.random.Generator) -> list[_Job]:
        found: dict[bytes, _Job] = {}
        for _ in range(trials * 20):
            if len(found) >= trials:
                break
            design = self.space.sample(rng)
            if design is not None:
                found.setdefault(design.key, _Job(design.sketch, design.chosen))
        return list(found.values())

    def _mutants(
        self, parents: list[_Job], seen: set[bytes], rng: np.random.Generator
    ) -> Iterator[_Job]:
        """Yield each parent's mutants in every direction, except those in ``seen``, which grows."""
        for parent in parents:
            key = parent.key
            for choice in choices(parent.chosen):
                mutant = self.space.mutate(parent.sketch, parent.chosen, choice.position, rng)
                if mutant is None or mutant.key in seen:
                    continue
                seen.add(mutant.key)
                direction = f"{choice.kind}:{choice.position}"
                yield _Job(parent.sketch, mutant.chosen, parent=key, direction=direction)

    def _measure_all(self, jobs: list[_Job], step: Step) -> None:
        # A mutant's record names its parent's record, so parents come first.
        for mutants in (False, True):
            mine = [
                job
                for job in jobs
                if (job.parent is not None) == mutants and (job.key, job.occasion) not in self.done
            ]
            what = "mutants" if mutants else "programs"
            for count, _ in enumerate(self._measured(mine), 1):
                step.advance(note=f"{count} of {len(mine)} {what}")

    def _fastest(self, jobs: list[_Job], parents: set[bytes], count: int) -> list[_Job]:
        """Return the fastest programs of the first occasion that were not parents yet."""
        timed: list[tuple[float, int]] = []
        for number, job in enumerate(jobs):
            position = self.done.get((job.key, 0))
            if job.occasion or position is None or job.key in parents:
                continue
            if self.writer.trials[position]["state"] == TrialState.OK.value:
                times = self.writer.records[position][1][1]
                timed.append((sum(times) / len(times), number))
        return [jobs[number] for _, number in sorted(timed)[:count]]

    def _measured(self, jobs: list[_Job]) -> Iterator[_Job]:
        """Measure the jobs and write each; a program that TVM refuses is left out."""
        for begin in range(0, len(jobs), TOGETHER):
            taken, programs = [], []
            for job in jobs[begin : begin + TOGETHER]:
                # TVM may refuse a program later: a mutated limit of parallel loops is no decision.
                design = self.space.realise(job.sketch, job.chosen)
                if design is not None:
                    taken.append((job, design.schedule))
                    programs.append(timed_program(design.schedule, self.space.inputs))
            for place, reading in self.device.measure_many(programs, lambda: None):
                job, schedule = taken[place]
                self.done[job.key, job.occasion] = self.writer.add(
                    self.index,
                    trace_json(schedule.trace),
                    entry_arguments(schedule.mod, as_timed=True),
                    reading,
                    occasion=job.occasion,
                    parent=None if job.parent is None else self.done.get((job.parent, 0)),
                    direction=job.direction,
                    threads=self.device.protocol.threads,
                )
                yield job
