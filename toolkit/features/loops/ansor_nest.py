"""Ansor's transform steps, replayed on loops whose extents are vectors over candidates.

The compute graph is not in the log, so a stage's loops are unknown until a step names them; what
is split, fused, followed or bound from then on is known (TVM ``auto_scheduler/transform_step.cc``).
Iterators are numbered as in the sketch: loops that a decision fuses are still apart there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from toolkit.features.base import CandidateGroup
from toolkit.features.loops.nest import (
    Axis,
    Floats,
    Nest,
    Region,
    knob_parts,
    product,
    running_product,
)

_BLOCKS, _THREADS, _VTHREADS = (5, 7, 9), (6, 8, 10), 4
_VECTORIZE, _PARALLEL = 2, 3
_DEEPEST = 64


@dataclass
class _Stage:
    kind: str = "compute"
    loops: list[Floats | None] = field(default_factory=list)
    splits: list[Axis] = field(default_factory=list)
    into: _Stage | None = None
    parallel: Floats | None = None
    fused: list[tuple[str, Floats]] = field(default_factory=list)

    @property
    def attached(self) -> bool:
        """Whether it is computed inside another stage."""
        return self.into is not None

    def root(self) -> _Stage:
        """The stage whose loops it runs in, after all attachments."""
        seen: list[_Stage] = [self]
        while seen[-1].into is not None and len(seen) < _DEEPEST:
            seen.append(seen[-1].into)
        return seen[-1]

    def reach(self, last: int) -> None:
        while len(self.loops) <= last:
            self.loops.append(None)


class _Replay:
    def __init__(self, group: CandidateGroup) -> None:
        self.group = group
        self.rows = len(group)
        self.nest = Nest(self.rows, label=group.task.workload)
        self.stages: list[_Stage] = []
        self.every: list[_Stage] = []
        self.levels: dict[int, list[Floats]] = {}
        self.split_by: dict[int, str] = {}
        self._knob = 0
        self._fetch: list[tuple[_Stage, Floats]] = []
        self._bound: dict[int, dict[str, list[Floats | None]]] = {}

    def decide(self) -> list[Floats]:
        """Parts of the next knob, each a vector."""
        knob = self.group.sketch.knobs[self._knob]
        self._knob += 1
        return knob_parts(self.group, knob)

    def stage(self, index: int) -> _Stage:
        while len(self.stages) <= index:
            self.stages.append(_Stage())
            self.every.append(self.stages[-1])
        return self.stages[index]

    def insert(self, index: int, kind: str) -> None:
        self.stage(index)
        fresh = _Stage(kind)
        self.stages.insert(index, fresh)
        self.every.append(fresh)
        self.nest.cached += 1

    def run(self) -> Nest:
        steps: list[list[Any]] = orjson.loads(self.group.sketch.skeleton)
        for number, step in enumerate(steps):
            getattr(self, "_" + step[0].lower(), self._nothing)(number, *step[1:])
        self._finish()
        return self.nest

    def _nothing(self, number: int, *rest: Any) -> None:
        """A step that moves no loop and decides nothing."""

    def _sp(self, number: int, stage: int, at: int, *rest: Any) -> None:
        name = self.group.sketch.knobs[self._knob].name
        own, levels = self.stage(stage), self.decide()
        own.reach(at)
        own.splits.append(Axis(name, levels))
        if own.kind == "cache_read" and len(own.splits) == 1:
            # The step's extent is that of the tiles which it was first applied to: mutations of
            # those leave it as it was. What is staged follows from the tiles instead.
            self._fetch.append((own, levels[-1]))
        self.levels[number] = levels
        self.split_by.update({id(level): name for level in levels})
        own.loops[at : at + 1] = levels

    def _fsp(self, number: int, stage: int, at: int, source: int, splits: int) -> None:
        own, levels = self.stage(stage), self.levels.get(source)
        own.reach(at)
        if levels is None:
            own.loops[at : at + 1] = [None] * (splits + 1)
            return
        rest = product(levels[splits:], self.rows)
        self.split_by[id(rest)] = self.split_by[id(levels[0])]
        own.loops[at : at + 1] = [*levels[:splits], rest]

    def _ffsp(
        self, number: int, stage: int, at: int, sources: list[int], level: int, *rest: Any
    ) -> None:
        own = self.stage(stage)
        own.reach(at)
        parts = [self.levels.get(source) for source in sources]
        inner: Floats | None = np.ones(self.rows)
        for levels in parts:
            known = levels is not None and len(levels) > level + 1 and inner is not None
            inner = inner * levels[level + 1] if known else None  # type: ignore[index,operator]
        whole = own.loops[at]
        outer = np.ceil(whole / inner) if whole is not None and inner is not None else None
        own.loops[at : at + 1] = [outer, inner]

    def _fu(self, number: int, stage: int, fused: list[int]) -> None:
        own = self.stage(stage)
        own.reach(max(fused))
        first = min(fused)
        whole = product([own.loops[i] for i in fused], self.rows)
        own.loops[first : first + len(fused)] = [whole]

    def _re(self, number: int, stage: int, order: list[int]) -> None:
        own = self.stage(stage)
        own.reach(max(order, default=-1))
        own.loops = [own.loops[i] for i in order]

    def _an(self, number: int, stage: int, at: int, kind: int) -> None:
        own = self.stage(stage)
        own.reach(at)
        if kind in (_VECTORIZE, _PARALLEL):
            count = self.decide()[0]
            if kind == _PARALLEL:
                self._parallel(own, at, count)
            elif own.kind != "cache_read":
                extent = running_product(own.loops[at::-1], count, self.rows)
                self.nest.vector = _widest(self.nest.vector, extent)
            return
        if own.kind == "cache_read":
            return
        bound = self._bound.setdefault(id(own), {"block": [], "thread": [], "vthread": []})
        word = {**dict.fromkeys(_BLOCKS, "block"), **dict.fromkeys(_THREADS, "thread")}.get(
            kind, "vthread" if kind == _VTHREADS else ""
        )
        if word:
            bound[word].append(own.loops[at])

    def _parallel(self, own: _Stage, at: int, count: Floats) -> None:
        """Fuse the first loops, of each candidate as many as it says, into the parallel one."""
        own.parallel = running_product(own.loops[at:], count, self.rows)
        for place, loop in enumerate(own.loops[at : at + int(count.max(initial=0))]):
            length = np.full(self.rows, np.nan) if loop is None else loop
            own.fused.append(
                (self.split_by.get(id(loop), ""), np.where(count > place, length, 1.0))
            )

    def _pr(self, number: int, stage: int, at: int, pragma: str) -> None:
        if pragma == "auto_unroll_max_step":
            self.nest.unroll = _widest(self.nest.unroll, self.decide()[0])

    def _ca(self, number: int, stage: int, target: int) -> None:
        own = self.stage(stage)
        self.nest.located.append(self.decide()[0])
        own.loops = [None] * len(own.loops)
        own.into = self.stage(target)

    def _ci(self, number: int, stage: int) -> None:
        self.nest.inlined += 1

    def _chr(self, number: int, stage: int, *rest: Any) -> None:
        self.insert(stage + 1, "cache_read")

    def _chw(self, number: int, stage: int, *rest: Any) -> None:
        self.insert(stage, "compute")

    def _rf(self, number: int, stage: int, *rest: Any) -> None:
        self.insert(stage, "compute")

    def _finish(self) -> None:
        """Name the main stage and list the kernels, the one with the most bindings first."""
        main = None
        able = [stage for stage in self.every if stage.splits and stage.kind == "compute"]
        if able:
            main = max(able, key=lambda stage: sum(len(axis.levels) for axis in stage.splits))
            # Later splits lie at higher iterators: their order is that of the stage's axes.
            self.nest.axes = main.splits
            self._reduce_across(main)
        self._regions(main)
        # Copies in the order of their stages, which is that of the operands.
        place = {id(stage): number for number, stage in enumerate(self.stages)}
        self._fetch.sort(key=lambda copy: place[id(copy[0])])
        self.nest.fetch = [length for _, length in self._fetch]
        unknown = np.full(self.rows, np.nan)
        attached = {id(stage) for stage in self.every if stage.attached}
        programs = {k: b for k, b in self._bound.items() if b["block"] or b["thread"]}
        kernels = [bound for key, bound in programs.items() if key not in attached]
        # A stage that is attached inside another's kernel and has threads of its own reduces
        # across them.
        for key, bound in programs.items():
            extent = product(bound["thread"], self.rows)
            if key in attached and extent is not None:
                self.nest.across = np.fmax(self.nest.across, extent)
        kernels.sort(key=lambda bound: -len(bound["vthread"]))
        for bound in kernels:
            for word, found in (
                ("block", self.nest.blocks),
                ("thread", self.nest.threads),
                ("vthread", self.nest.vthreads),
            ):
                extent = product(bound[word], self.rows)
                found.append(unknown if extent is None else extent)

    def _regions(self, main: _Stage | None) -> None:
        """List the stages with a parallel loop of their own; that around the main one is told."""
        around = None if main is None else main.root()
        work = (
            None if main is None else product([v for a in main.splits for v in a.levels], self.rows)
        )
        for stage in self.every:
            if stage.parallel is None or stage.attached:
                continue
            steps = work if stage is around else product(stage.loops, self.rows)
            unknown = np.full(self.rows, np.nan)
            self.nest.regions.append(Region(stage.parallel, unknown if steps is None else steps))
            if stage is around or self.nest.parallel is None:
                self.nest.parallel, self.nest.fused = stage.parallel, stage.fused

    def _reduce_across(self, main: _Stage) -> None:
        """See whether threads add up together: one split loop is theirs, another the blocks'.

        TVM ``sketch_policy_rules.cc``, ``RuleCrossThreadReduction`` and ``InitThreadBind``: the
        fused reduction is split for the threads, the fused outputs, which no step sizes, are the
        blocks.
        """
        bound = self._bound.get(id(main))
        if bound is None or main.attached or len(main.splits) != 1 or bound["vthread"]:
            return
        threads = product(bound["thread"], self.rows)
        unsized = bool(bound["block"]) and all(extent is None for extent in bound["block"])
        if bound["thread"] and threads is not None and unsized:
            main.splits[0].reduces = True
            self.nest.across = threads


def _widest(old: Floats | None, new: Floats) -> Floats:
    return new if old is None else np.fmax(old, new)


def ansor_nest(group: CandidateGroup) -> Nest:
    """Replay a sketch's steps for all candidates of a group at once."""
    return _Replay(group).run()
