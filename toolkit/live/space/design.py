"""TVM's design spaces of one workload: sample, enumerate and mutate valid traces.

A trace is JSON (``[instructions, decisions]``); a design is the schedule that TVM makes of it. TVM
decides what is valid: a trace is in the space if TVM can apply it, keeps its decisions, and all
postprocessors accept it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.schedule import Trace

from toolkit.errors import LiveError
from toolkit.live.measure.machine import tvm_says, tvm_target
from toolkit.live.space.choices import (
    Choice,
    all_values,
    choices,
    other_values,
    with_value,
    without_postprocessors,
)
from toolkit.live.space.intrinsics import load_intrinsics
from toolkit.live.space.locations import Locations, learn_locations
from toolkit.live.space.parallel import parallel_limits, same_plan
from toolkit.live.space.programs import (
    count_inputs,
    decisions_of,
    plain,
    replay_trace,
    trace_json,
)
from toolkit.live.space.quiet import quiet

_ASK_AGAIN = tuple(8**power for power in range(2, 7))

# Largest number of proposals for another value of a decision.
_PROPOSALS = 6

BARREN = 4
"""A mutator is exhausted when so many draws in a row give no new value."""


@dataclass(frozen=True)
class Design:
    """A valid schedule: its trace without postprocessors, and TVM's schedule."""

    sketch: int
    chosen: list[Any]
    schedule: Schedule

    @property
    def key(self) -> bytes:
        """Designs of one sketch with equal decisions have equal keys."""
        return design_key(self.sketch, self.chosen)


def design_key(sketch: int, chosen: list[Any]) -> bytes:
    """Return the identity of a design: its sketch and the values of its decisions."""
    return orjson.dumps([sketch, [choice.value for choice in choices(chosen)]])


class DesignSpace:
    """All designs of a workload (entry ``main``) on a target.

    ``seed`` is for TVM's own generator, in [1, 2**31 - 1].
    """

    def __init__(self, module: tvm.IRModule, target: str, *, seed: int = 1) -> None:
        self.module = module
        self.target = tvm_target(target)
        self.inputs = count_inputs(module)
        load_intrinsics(target)
        try:
            self._context = ms.TuneContext(
                mod=module,
                target=self.target,
                space_generator="post-order-apply",
                search_strategy="evolutionary",
                task_name="main",
                rand_state=seed,
                num_threads=1,
            )
            with quiet():
                spaces = self._context.generate_design_space()
        except Exception as error:  # TVM's errors have no type in common
            raise LiveError(
                f"TVM cannot make a design space of the workload for {target}: "
                f"{tvm_says(error)[:200]}",
                cure="check that the target has all attributes that TVM needs",
            ) from None
        self.bases: list[list[Any]] = [trace_json(space.trace) for space in spaces]
        self._traces = [space.trace for space in spaces]
        self._postprocessors = list(self._context.space_generator.postprocs)
        self._seen_values: dict[tuple[int, int], tuple[list[Any], int]] = {}
        self._locations: dict[int, Locations | None] = {}
        self._mutators = {
            type(mutator).__name__: mutator
            for mutator in self._context.space_generator.mutator_probs
        }

    def realise(self, sketch: int, chosen: list[Any]) -> Design | None:
        """Apply a trace and the postprocessors; ``None`` when it is not in the space."""
        chosen = without_postprocessors(chosen)
        schedule = self._applied(chosen)
        if schedule is None or decisions_of(schedule, (p for p, _ in chosen[1])) != chosen[1]:
            return None
        return self._postprocessed(sketch, chosen, schedule)

    def sample(self, rng: np.random.Generator, sketch: int | None = None) -> Design | None:
        """Draw one design (of one sketch); ``None`` if TVM refuses what was drawn."""
        drawn = self.draw(rng, sketch)
        return None if drawn is None else self._postprocessed(*drawn)

    def draw(
        self, rng: np.random.Generator, sketch: int | None = None
    ) -> tuple[int, list[Any], Schedule] | None:
        """Draw like ``sample``, without postprocessors; return sketch, trace and schedule.

        Postprocessors take most of the time, but refuse hardly any program of a CPU: none of 4,375
        draws for the functions of six networks, 3 of 775 for a seventh.
        """
        if sketch is None:
            sketch = int(rng.integers(len(self.bases)))
        schedule = Schedule(self.module, seed=int(rng.integers(1, 2**31 - 1)), debug_mask="none")
        try:
            Trace(self._traces[sketch].insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        except Exception:
            return None
        # A draw copies the instructions of its sketch; only its decisions are new.
        instructions, decisions = without_postprocessors(self.bases[sketch])
        drawn = decisions_of(schedule, (position for position, _ in decisions))
        return sketch, [instructions, drawn], schedule

    def settled(self, sketch: int, chosen: list[Any]) -> list[Any]:
        """Return the trace with the compute location that TVM would take (``Locations``).

        Traces that are made here need it; traces that TVM made do not.
        """
        if sketch not in self._locations:
            self._locations[sketch] = learn_locations(self.module, chosen)
        locations = self._locations[sketch]
        return chosen if locations is None else locations.settled(chosen)

    def _postprocessed(self, sketch: int, chosen: list[Any], schedule: Schedule) -> Design | None:
        schedule.enter_postproc()
        with contextlib.suppress(Exception):
            if all(post.apply(schedule) for post in self._postprocessors):
                return Design(sketch, chosen, schedule)
        return None

    def mutate(
        self, sketch: int, chosen: list[Any], position: int, rng: np.random.Generator
    ) -> Design | None:
        """Change the decision at an instruction to another value; ``None`` when none is found.

        A divisor of a tile moves to another level, and a category takes any other value. Values of
        compute locations and parallel extents are proposed by TVM's mutators.
        """
        proposals = self.proposals(sketch, chosen, position, rng)
        designs = (self.realise(sketch, proposal) for proposal in proposals)
        return next((design for design in designs if design is not None), None)

    def proposals(
        self, sketch: int, chosen: list[Any], position: int, rng: np.random.Generator
    ) -> Iterator[list[Any]]:
        """Yield a few traces with another decision at an instruction, in random order.

        Nearly all are valid (``realise`` decides). A proposal costs microseconds; applying a trace
        costs milliseconds.
        """
        choice = next(c for c in choices(chosen) if c.position == position)
        key = design_key(sketch, chosen)
        # The possible values of these kinds depend on the loops.
        if choice.kind in ("compute_location", "parallel"):
            values = self._proposed(choice, sketch, chosen, rng)
        else:
            values = other_values(choice)
        values = [value for value in values if value != choice.value]
        for index in rng.permutation(len(values))[:_PROPOSALS]:
            proposal = self.settled(sketch, with_value(chosen, choice, values[index]))
            if design_key(sketch, proposal) != key:
                yield proposal

    def _proposed(
        self, choice: Choice, sketch: int, chosen: list[Any], rng: np.random.Generator
    ) -> list[Any]:
        """Return values for a compute location, or for a limit of parallel loops.

        If the rule for the compute location is known (``Locations``), it gives the values.
        Otherwise TVM applies the trace, which takes milliseconds. All programs of a sketch have
        their loops in the same order, so values found for one program serve the others. But extents
        differ, so TVM is asked again after 64, 512, ... times.
        """
        locations = self._locations.get(sketch)
        if locations is not None and locations.position == choice.position:
            return locations.values(dict(chosen[1]))
        key = (sketch, choice.position)
        known, asked = self._seen_values.get(key, ([], 0))
        if asked in (0, *_ASK_AGAIN):
            if choice.kind == "parallel":
                fresh = self._parallel_limits(choice, sketch, chosen)
            else:
                fresh = self._ask_mutator(choice, chosen, rng)
            known = known + [value for value in fresh if value not in known]
        self._seen_values[key] = (known, asked + 1)
        return known

    def _parallel_limits(self, choice: Choice, sketch: int, chosen: list[Any]) -> list[Any]:
        """Return limits of parallel loops that fuse other loops than the program's own limit."""
        schedule = self._applied(chosen)
        if schedule is None:
            return []
        # The rule that made the sketch wrote the largest limit into the annotation.
        most = int(self.bases[sketch][0][choice.position][1][1])
        limits = parallel_limits(schedule.mod, most)
        return [limit for limit in limits if not same_plan(limits, limit, int(choice.value))]

    def _ask_mutator(
        self, choice: Choice, chosen: list[Any], rng: np.random.Generator
    ) -> list[Any]:
        """Return locations that TVM's mutator draws, until ``BARREN`` draws bring nothing new."""
        mutator, schedule = self._mutators.get("MutateComputeLocation"), self._applied(chosen)
        found: list[Any] = []
        barren = 0
        while mutator is not None and schedule is not None and barren < BARREN:
            seed = int(rng.integers(1, 2**31 - 1))
            mutated = _ffi_api.MutatorApply(mutator, schedule.trace, seed)
            if mutated is None:
                break
            # Only this decision is read: the whole trace would take most of the time.
            value = plain(mutated.decisions[mutated.insts[choice.position]])
            barren += 1
            if value not in found:
                found.append(value)
                barren = 0
        return found

    def _applied(self, chosen: list[Any]) -> Schedule | None:
        """Return the schedule of a trace without postprocessors; ``None`` if TVM refuses it."""
        return replay_trace(self.module, without_postprocessors(chosen))

    def enumerate(self, limit: int) -> list[Design] | None:
        """Return all designs; ``None`` if there may be more than ``limit`` combinations."""
        counts = [[len(list(all_values(choice))) for choice in choices(b)] for b in self.bases]
        if sum(map(math.prod, counts)) > limit * 64:
            return None
        found: dict[bytes, Design] = {}
        for sketch, base in enumerate(self.bases):
            places = [c for c in choices(base) if c.kind == "compute_location"]
            fixed = [c for c in choices(base) if c.kind != "compute_location"]
            for combination in itertools.product(*(list(all_values(c)) for c in fixed)):
                trace = base
                for choice, value in zip(fixed, combination, strict=True):
                    trace = with_value(trace, choice, value)
                found |= {one.key: one for one in self._placed(sketch, trace, places)}
        return list(found.values()) if len(found) <= limit else None

    def _placed(self, sketch: int, trace: list[Any], places: list[Choice]) -> Iterator[Design]:
        """Yield designs with all valid compute locations, decided one after the other."""
        if not places:
            design = self.realise(sketch, trace)
            if design is not None:
                yield design
            return
        first, *rest = places
        for value in all_values(first):
            changed = with_value(trace, first, value)
            schedule = self._applied(changed)
            # TVM may choose another location instead.
            kept = None if schedule is None else decisions_of(schedule, [first.position])
            if kept == [[first.position, value]]:
                yield from self._placed(sketch, changed, rest)
