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
from toolkit.features.nest import Axis, Floats, Nest, knob_parts, product, running_product

_BLOCKS, _THREADS, _VTHREADS = (5, 7, 9), (6, 8, 10), 4
_VECTORIZE, _PARALLEL = 2, 3


@dataclass
class _Stage:
    kind: str = "compute"
    loops: list[Floats | None] = field(default_factory=list)
    splits: list[Axis] = field(default_factory=list)
    attached: bool = False

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
        own.loops[at : at + 1] = levels

    def _fsp(self, number: int, stage: int, at: int, source: int, splits: int) -> None:
        own, levels = self.stage(stage), self.levels.get(source)
        own.reach(at)
        if levels is None:
            own.loops[at : at + 1] = [None] * (splits + 1)
            return
        rest = product(levels[splits:], self.rows)
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
                extent = running_product(own.loops[at:], count, self.rows)
                self.nest.parallel = _widest(self.nest.parallel, extent)
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

    def _pr(self, number: int, stage: int, at: int, pragma: str) -> None:
        if pragma == "auto_unroll_max_step":
            self.nest.unroll = _widest(self.nest.unroll, self.decide()[0])

    def _ca(self, number: int, stage: int, target: int) -> None:
        own = self.stage(stage)
        self.nest.located.append(self.decide()[0])
        own.loops = [None] * len(own.loops)
        own.attached = True

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
        able = [stage for stage in self.every if stage.splits and stage.kind == "compute"]
        if able:
            main = max(able, key=lambda stage: sum(len(axis.levels) for axis in stage.splits))
            # Later splits lie at higher iterators: their order is that of the stage's axes.
            self.nest.axes = main.splits
            self._reduce_across(main)
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
