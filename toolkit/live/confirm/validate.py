"""Rebuilds what the record holds to be fast, refines it on the device, and proves the winner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from toolkit.datasets import Dataset
from toolkit.errors import LiveError
from toolkit.live.confirm.blocks import confirm
from toolkit.live.confirm.verdict import Looked, ValidateSettings, verdict_of, write_verdicts
from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import noise_warnings
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.design import Design, DesignSpace
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.programs import checked_program, load_workload, timed_program
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.guides import Guides
from toolkit.live.tune.refine import refine
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress, Step
from toolkit.records import Candidate, Task, Trial, TrialState

# How a task's time is shared out; screening takes what it takes.
REFINE_SHARE = 0.4
UNSCHEDULED = "the unscheduled program"


@dataclass
class _Screened:
    """What the first look at a task gave: trials by candidate, and what failed and why."""

    trials: list[Trial] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)


@one_writer
def validate(
    dataset: Dataset,
    tasks: Sequence[Task],
    out: Path,
    *,
    target_of: dict[str, str],
    protocol: Protocol,
    settings: ValidateSettings,
    guides: Guides,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Validate tasks one after the other; write ``verdicts.json`` and the new measurements.

    ``target_of`` gives the target for each task id. Returns what ``verdicts.json`` holds.
    """
    started = time.perf_counter()
    targets = dict.fromkeys(target_of[task.task_id] for task in tasks)
    warnings = noise_warnings(protocol.threads) + guides.warnings(*targets)
    verdicts = []
    for task in tasks:
        with progress.step(f"validate {task.workload}", settings.seconds) as step:
            one = _Validation(dataset, task, target_of[task.task_id], protocol, settings, guides)
            verdicts.append(one.run(out, step))
    return write_verdicts(
        out,
        verdicts,
        protocol=protocol,
        settings=settings,
        dataset=dataset.fingerprint(),
        warnings=warnings,
        started=started,
    )


class _Validation:
    """One task: screen, refine, confirm."""

    def __init__(
        self,
        dataset: Dataset,
        task: Task,
        target: str,
        protocol: Protocol,
        settings: ValidateSettings,
        guides: Guides,
    ) -> None:
        self.task = task
        self.target = target
        self.protocol = protocol
        self.settings = settings
        self.guides = guides
        self.rng = np.random.default_rng(settings.seed)
        assert task.blob is not None
        self.module = load_workload(task.blob)
        self.space = MetaScheduleSpace(
            DesignSpace(self.module, target, seed=settings.seed + 1),
            machine=task.machine,
        )
        recorded = dataset.candidates([task.task_id]).filter(pl.col("state") == "ok")
        self.recorded = recorded.sort("latency_s", "candidate_id")

    def run(self, out: Path, step: Step) -> dict[str, Any]:
        started = time.perf_counter()
        folder = out / "measured" / self.task.task_id
        with Device(self.target, self.protocol) as device, DatabaseWriter(folder, self.target) as w:
            oracle = DeviceOracle(self.space, device, w)
            self._describe(w)
            device.set_reference(checked_program(self.module, self.space.design.inputs))
            incumbent, name = self._incumbent()
            screened = self._screen(oracle, device, step)
            refined = self._refine(oracle, screened, step, started)
            ranked = self._ranked([*screened.trials, *refined], incumbent)
            challengers = self._checked(ranked, device, screened)
        left = max(5.0, self.settings.seconds - (time.perf_counter() - started))
        result = confirm(
            self._incumbent_program(incumbent),
            {c.candidate_id: self._program(c) for c in challengers},
            target=self.target,
            protocol=self.protocol,
            rules=self.settings.rules,
            seconds=left,
            rng=self.rng,
            step=step,
        )
        looked = Looked(
            incumbent=name,
            incumbent_id=None if incumbent is None else incumbent.candidate_id,
            screened=len(screened.trials),
            refined=len(refined),
            rejected=screened.failed,
            recorded={trial.candidate.candidate_id for trial in screened.trials},
            read_s={
                trial.candidate.candidate_id: trial.latency_s
                for trial in (*screened.trials, *refined)
                if trial.latency_s is not None
            },
            started=started,
        )
        return verdict_of(self.task, self.target, result, looked)

    def _describe(self, writer: DatabaseWriter) -> None:
        task = {"workload_index": 0, "name": self.task.workload, "space_size": None}
        writer.describe(
            {
                "machine": self.task.machine,
                "target": self.target,
                "protocol": self.protocol.to_dict(),
                "tasks": [task],
            }
        )

    def _realised(self, candidate: Candidate) -> Design:
        design = self.space.realise(candidate)
        if design is None:
            raise LiveError(f"TVM refuses candidate {candidate.candidate_id}, which it measured")
        return design

    def _program(self, candidate: Candidate) -> Program:
        design = self._realised(candidate)
        return timed_program(design.schedule, self.space.design.inputs)

    def _incumbent(self) -> tuple[Candidate | None, str]:
        """The best recorded candidate that this TVM can rebuild, else the unscheduled program."""
        for schedule in self.recorded["schedule"].head(20):
            candidate = self.space.adopt(schedule)
            if candidate is not None:
                return candidate, "best recorded"
        return None, UNSCHEDULED

    def _incumbent_program(self, incumbent: Candidate | None) -> Program:
        if incumbent is not None:
            return self._program(incumbent)
        program = checked_program(self.module, self.space.design.inputs)
        return Program(program.key + "-timed", program.text, program.arguments, program.inputs)

    def _screen(self, oracle: DeviceOracle, device: Device, step: Step) -> _Screened:
        """Rebuild the recorded top, compare outputs, take one reading of each."""
        screened = _Screened()
        began = time.perf_counter()
        for schedule in self.recorded["schedule"].head(self.settings.top):
            candidate = self.space.adopt(schedule)
            if candidate is None:
                screened.failed.append({"candidate": "", "error": "TVM refuses its schedule"})
                continue
            if self._wrong(candidate, device, screened):
                continue
            screened.trials += oracle.measure([candidate])
        step.advance(time.perf_counter() - began, note="rebuilt the recorded best")
        return screened

    def _wrong(self, candidate: Candidate, device: Device, screened: _Screened) -> bool:
        design = self._realised(candidate)
        answer = device.check(checked_program(design.schedule.mod, self.space.design.inputs))
        if answer.state is TrialState.OK:
            return False
        screened.wrong.add(candidate.candidate_id)
        screened.failed.append(
            {"candidate": candidate.candidate_id, "error": answer.error or answer.state.value}
        )
        return True

    def _refine(
        self, oracle: DeviceOracle, screened: _Screened, step: Step, started: float
    ) -> list[Trial]:
        budget = REFINE_SHARE * self.settings.seconds
        spent = time.perf_counter() - started
        if budget <= spent:
            return []
        return refine(
            self.space,
            oracle,
            strategy=self.settings.strategy,
            known=screened.trials,
            seconds=budget,
            rng=self.rng,
            guides=self.guides,
            judged_task=self.task.task_id,
            step=step,
        )

    @staticmethod
    def _ranked(trials: list[Trial], incumbent: Candidate | None) -> list[Candidate]:
        """Candidates by their one reading, fastest first, the incumbent left out."""
        timed = [(t.latency_s, t.candidate) for t in trials if t.latency_s is not None]
        timed.sort(key=lambda pair: pair[0])
        ranked = {c.candidate_id: c for _, c in timed}
        if incumbent is not None:
            ranked.pop(incumbent.candidate_id, None)
        return list(ranked.values())

    def _checked(
        self, ranked: list[Candidate], device: Device, screened: _Screened
    ) -> list[Candidate]:
        """The fastest whose outputs are right."""
        chosen: list[Candidate] = []
        known = {trial.candidate.candidate_id for trial in screened.trials}
        for candidate in ranked:
            if len(chosen) == self.settings.challengers:
                break
            if candidate.candidate_id in known or not self._wrong(candidate, device, screened):
                chosen.append(candidate)
        return chosen
