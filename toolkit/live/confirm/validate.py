"""Rebuild a task's fastest recorded candidates, and refine them with a search on the device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl

from toolkit import show
from toolkit.datasets import Dataset
from toolkit.errors import LiveError
from toolkit.live.confirm.verdict import Screening, ValidateSettings
from toolkit.live.measure.device import Device
from toolkit.live.measure.fingerprint import machine_fingerprint
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.remote import Remote
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.design import Design, DesignSpace
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.programs import checked_program, load_workload, timed_program
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.tune import make_strategy
from toolkit.progress import Step
from toolkit.records import Candidate, Task, Trial, TrialState
from toolkit.search.runner import Budget, Run, run
from toolkit.training.trained.models import TrainedModels

# Share of a task's time for the refinement; the screening has no limit.
REFINE_SHARE = 0.4

# The incumbent is the first of so many recorded candidates that TVM accepts.
INCUMBENTS = 20

REFINE_BATCH = 16
"""Candidates in one batch of the refinement."""


class Screener:
    """Screens and refines one task that this TVM can rebuild."""

    def __init__(
        self,
        dataset: Dataset,
        task: Task,
        target: str,
        protocol: Protocol,
        settings: ValidateSettings,
        guides: TrainedModels,
        rng: np.random.Generator,
        remote: Remote | None = None,
    ) -> None:
        assert task.blob is not None
        self.task, self.target, self.protocol, self.remote = task, target, protocol, remote
        self.settings, self.guides, self.rng = settings, guides, rng
        self.space = MetaScheduleSpace(
            DesignSpace(load_workload(task.blob), target, seed=settings.seed + 1),
            machine=task.machine,
        )
        self.inputs = self.space.design.inputs
        recorded = dataset.candidates([task.task_id]).filter(pl.col("state") == "ok")
        self.schedules = recorded.sort("latency_s", "candidate_id")["schedule"]
        self.rejected: list[dict[str, str]] = []

    def run(self, folder: Path, step: Step) -> Screening:
        """Find incumbent and challengers; write the measurements to a database in ``folder``."""
        started = time.perf_counter()
        unscheduled = checked_program(self.space.design.module, self.inputs)
        if self.remote is not None:
            fingerprint = self.remote.fingerprint(self.target)
            opened: Device = self.remote.open(self.target, self.protocol)
        else:
            fingerprint = machine_fingerprint(self.target)
            opened = Device(self.target, self.protocol)
        with opened as device, DatabaseWriter(folder, self.target) as writer:
            oracle = DeviceOracle(self.space, device, writer)
            entry = {"workload_index": 0, "name": self.task.workload, "space_size": None}
            writer.describe(
                {
                    "machine": self.task.machine,
                    "machine_fingerprint": fingerprint,
                    "target": self.target,
                    "protocol": self.protocol.to_dict(),
                    "tasks": [entry],
                }
            )
            device.set_reference(unscheduled)
            adopted = map(self.space.adopt, self.schedules.head(INCUMBENTS))
            incumbent = next((found for found in adopted if found is not None), None)
            screened = self._screen(oracle, device, step)
            refined: list[Trial] = []
            budget = REFINE_SHARE * self.settings.seconds
            # The incumbent needs a challenger, even if the screening took all the time.
            if len(screened) < 2 or budget > time.perf_counter() - started:
                refined = self._refine(oracle, screened, budget, step)
            chosen = self._fastest(screened, refined, incumbent, device)
        return Screening(
            started=started,
            incumbent="the unscheduled program" if incumbent is None else "best recorded",
            incumbent_id=None if incumbent is None else incumbent.candidate_id,
            program=replace(unscheduled, key=unscheduled.key + "-timed")
            if incumbent is None
            else self._program(incumbent),
            challengers={each.candidate_id: self._program(each) for each in chosen},
            screened=[(trial.candidate.candidate_id, trial.latency_s) for trial in screened],
            rejected=self.rejected,
            refined=[(trial.candidate.candidate_id, trial.latency_s) for trial in refined],
        )

    def _realised(self, candidate: Candidate) -> Design:
        design = self.space.realise(candidate)
        if design is None:
            raise LiveError(f"TVM now refuses candidate {candidate.candidate_id}, accepted before")
        return design

    def _program(self, candidate: Candidate) -> Program:
        return timed_program(self._realised(candidate).schedule, self.inputs)

    def _screen(self, oracle: DeviceOracle, device: Device, step: Step) -> list[Trial]:
        """Rebuild the best recorded candidates, compare their outputs, and measure each once."""
        screened: list[Trial] = []
        began = time.perf_counter()
        for schedule in self.schedules.head(self.settings.top):
            candidate = self.space.adopt(schedule)
            if candidate is None:
                self.rejected.append({"candidate": "", "error": "TVM refuses its schedule"})
            elif self._is_right(candidate, device):
                screened += oracle.measure([candidate])
        step.advance(time.perf_counter() - began, note="rebuilt the recorded best")
        return screened

    def _refine(
        self, oracle: DeviceOracle, known: list[Trial], seconds: float, step: Step
    ) -> list[Trial]:
        """Search for ``seconds`` at most, starting from the known trials; return the new trials."""
        # The models know the recorded task: compiled for this machine it has another id.
        name, task = self.settings.strategy, self.task
        searcher = make_strategy(self.space, self.guides, name, None, self.rng, task=task)
        if known:
            searcher.tell(known)
        last = 0.0

        def follow(state: Run, _: Sequence[Trial]) -> None:
            nonlocal last
            best = state.best_latency_s
            note = f"{state.evaluations} trials" + (f", best {show.seconds(best)}" if best else "")
            step.advance(max(0.0, state.seconds - last), note=note)
            last = state.seconds

        budget = Budget(seconds=seconds)
        return run(searcher, oracle, budget, batch_size=REFINE_BATCH, on_batch=follow).trials

    def _is_right(self, candidate: Candidate, device: Device) -> bool:
        """Return whether a candidate's outputs equal the unscheduled program's; note failures."""
        module = self._realised(candidate).schedule.mod
        answer = device.check(checked_program(module, self.inputs))
        if answer.state is not TrialState.OK:
            error = answer.error or answer.state.value
            self.rejected.append({"candidate": candidate.candidate_id, "error": error})
        return answer.state is TrialState.OK

    def _fastest(
        self,
        screened: list[Trial],
        refined: list[Trial],
        incumbent: Candidate | None,
        device: Device,
    ) -> list[Candidate]:
        """Return the challengers: the fastest candidates by one reading, with right outputs."""
        trials = (*screened, *refined)
        timed = [(t.latency_s, t.candidate) for t in trials if t.latency_s is not None]
        timed.sort(key=lambda pair: pair[0])
        ranked = {candidate.candidate_id: candidate for _, candidate in timed}
        if incumbent is not None:
            ranked.pop(incumbent.candidate_id, None)
        known = {trial.candidate.candidate_id for trial in screened}
        right = (c for name, c in ranked.items() if name in known or self._is_right(c, device))
        return list(islice(right, self.settings.challengers))
