"""Ansor's transform steps, replayed on loops whose extents are vectors over candidates.

The compute graph is not in the log, so a stage's loops are unknown until a step names them. Splits,
fusions and bindings after that are known (TVM ``auto_scheduler/transform_step.cc``). Iterators are
numbered as in the sketch, where loops that a decision fuses are still separate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from toolkit.features.base import CandidateGroup, Floats
from toolkit.features.loops.nest import Axis, Loop, Nest, Region, Replay, product, running_product

_VECTORIZE, _PARALLEL = 2, 3
_BOUND = {**dict.fromkeys((5, 7, 9), "block"), **dict.fromkeys((6, 8, 10), "thread"), 4: "vthread"}
_DEEPEST = 64


@dataclass(eq=False)
class _Stage:
    kind: str = "compute"
    loops: list[Loop] = field(default_factory=list)
    splits: list[Axis] = field(default_factory=list)
    into: _Stage | None = None
    parallel: Floats | None = None
    fused: list[tuple[str, Floats]] = field(default_factory=list)
    bound: dict[str, list[Floats]] = field(
        default_factory=lambda: {"block": [], "thread": [], "vthread": []}
    )


class _Replay(Replay):
    def __init__(self, group: CandidateGroup) -> None:
        super().__init__(group)
        self.nest.label = group.task.workload
        self.unnamed = Loop(self.unknown)
        self.stages: list[_Stage] = []
        self.every: list[_Stage] = []  # in the order of their first step
        self.annotated: list[_Stage] = []
        self.levels: dict[int, list[Loop]] = {}
        self.fetch: list[tuple[_Stage, Floats]] = []

    def run(self) -> Nest:
        steps: list[list[Any]] = orjson.loads(self.group.sketch.skeleton)
        for number, (kind, stage, *rest) in enumerate(steps):
            method = getattr(self, "_" + kind.lower(), None)
            if method is not None:  # others move no loop and decide nothing
                method(number, stage, *rest)
        self._finish()
        return self.nest

    def stage(self, index: int, *iterators: int) -> _Stage:
        """Return a stage, with at least the loops that a step names."""
        while len(self.stages) <= index:
            self.stages.append(_Stage())
            self.every.append(self.stages[-1])
        own = self.stages[index]
        own.loops += [self.unnamed] * (max(iterators, default=-1) + 1 - len(own.loops))
        return own

    def insert(self, index: int, kind: str = "compute") -> None:
        self.stage(index)
        self.stages.insert(index, _Stage(kind))
        self.every.append(self.stages[index])
        self.nest.cached += 1

    def _sp(self, number: int, stage: int, at: int, *rest: Any) -> None:
        own, (name, parts) = self.stage(stage, at), self.decide()
        own.splits.append(Axis(name, parts))
        if own.kind == "cache_read" and len(own.splits) == 1:
            # The step's extent belongs to the first program's tiles; mutations of the tiles do not
            # change it. So the staged size is computed from the tiles.
            self.fetch.append((own, parts[-1]))
        self.levels[number] = [Loop(part, source=name) for part in parts]
        own.loops[at : at + 1] = self.levels[number]

    def _fsp(self, number: int, stage: int, at: int, source: int, splits: int) -> None:
        levels = self.levels.get(source, [self.unnamed] * (splits + 1))
        rest = product((loop.extent for loop in levels[splits:]), self.rows)
        followed = [*levels[:splits], Loop(rest, source=levels[0].source)]
        self.stage(stage, at).loops[at : at + 1] = followed

    def _ffsp(
        self, number: int, stage: int, at: int, sources: list[int], level: int, *rest: Any
    ) -> None:
        own = self.stage(stage, at)
        inner = np.ones(self.rows)
        for source in sources:
            levels = self.levels.get(source, [])[level + 1 :] or [self.unnamed]
            inner = inner * levels[0].extent
        outer = np.ceil(own.loops[at].extent / inner)
        own.loops[at : at + 1] = [Loop(outer), Loop(inner)]

    def _fu(self, number: int, stage: int, fused: list[int]) -> None:
        own, first = self.stage(stage, *fused), min(fused)
        whole = product((own.loops[i].extent for i in fused), self.rows)
        own.loops[first : first + len(fused)] = [Loop(whole)]

    def _re(self, number: int, stage: int, order: list[int]) -> None:
        own = self.stage(stage, *order)
        own.loops = [own.loops[i] for i in order]

    def _an(self, number: int, stage: int, at: int, kind: int) -> None:
        own = self.stage(stage, at)
        if kind == _PARALLEL:
            count, loops = self.decide()[1][0], own.loops[at:]
            own.parallel = running_product([loop.extent for loop in loops], count, self.rows)
            for place, loop in enumerate(loops[: int(count.max(initial=0))]):
                own.fused.append((loop.source, np.where(count > place, loop.extent, 1.0)))
        elif kind == _VECTORIZE:
            count = self.decide()[1][0]
            if own.kind != "cache_read":
                inwards = [loop.extent for loop in own.loops[at::-1]]
                extent = running_product(inwards, count, self.rows)
                self.nest.vector = _widest(self.nest.vector, extent)
        elif own.kind != "cache_read":
            if own not in self.annotated:
                self.annotated.append(own)
            if kind in _BOUND:
                own.bound[_BOUND[kind]].append(own.loops[at].extent)

    def _pr(self, number: int, stage: int, at: int, pragma: str) -> None:
        if pragma == "auto_unroll_max_step":
            self.nest.unroll = _widest(self.nest.unroll, self.decide()[1][0])

    def _ca(self, number: int, stage: int, target: int) -> None:
        own = self.stage(stage)
        self.nest.located.append(self.decide()[1][0])
        own.loops = [self.unnamed] * len(own.loops)
        own.into = self.stage(target)

    def _ci(self, number: int, stage: int) -> None:
        self.nest.inlined += 1

    def _chr(self, number: int, stage: int, *rest: Any) -> None:
        self.insert(stage + 1, "cache_read")

    def _chw(self, number: int, stage: int, *rest: Any) -> None:
        self.insert(stage)

    _rf = _chw

    def _finish(self) -> None:
        """Name the main stage and list the kernels, the one with the most bindings first."""
        nest, main = self.nest, None
        able = [stage for stage in self.every if stage.splits and stage.kind == "compute"]
        if able:
            main = max(able, key=lambda stage: sum(len(axis.levels) for axis in stage.splits))
            # Later splits lie at higher iterators: their order is that of the stage's axes.
            nest.axes = main.splits
            self._reduce_across(main)
        self._regions(main)
        # Copies in the order of their stages, which is that of the operands.
        self.fetch.sort(key=lambda copy: self.stages.index(copy[0]))
        nest.fetch = [length for _, length in self.fetch]
        kernels = []
        for stage in self.annotated:
            if stage.into is None and (stage.bound["block"] or stage.bound["thread"]):
                kernels.append(stage.bound)
            elif stage.bound["block"] or stage.bound["thread"]:
                # A stage that is attached inside another's kernel and has threads of its own
                # reduces across them.
                nest.across = np.fmax(nest.across, product(stage.bound["thread"], self.rows))
        for bound in sorted(kernels, key=lambda bound: -len(bound["vthread"])):
            nest.blocks.append(product(bound["block"], self.rows))
            nest.threads.append(product(bound["thread"], self.rows))
            nest.vthreads.append(product(bound["vthread"], self.rows))

    def _regions(self, main: _Stage | None) -> None:
        """List the stages with a parallel loop, and set the loop around the main stage."""
        around = main
        for _ in range(_DEEPEST):  # two stages of a damaged log may be attached to each other
            around = around.into if around is not None and around.into is not None else around
        for stage in self.every:
            if stage.parallel is None or stage.into is not None:
                continue
            extents = [loop.extent for loop in stage.loops]
            if main is not None and stage is around:
                extents = [level for axis in main.splits for level in axis.levels]
            self.nest.regions.append(Region(stage.parallel, product(extents, self.rows)))
            if stage is around or self.nest.parallel is None:
                self.nest.parallel, self.nest.fused = stage.parallel, stage.fused

    def _reduce_across(self, main: _Stage) -> None:
        """Detect a reduction across threads: a split loop is bound to threads, another to blocks.

        TVM ``sketch_policy_rules.cc``, ``RuleCrossThreadReduction`` and ``InitThreadBind``: the
        fused reduction is split for the threads; the fused outputs, whose size is in no step, are
        the blocks.
        """
        block, thread, vthread = main.bound.values()
        if main.into is not None or len(main.splits) != 1 or vthread or not (block and thread):
            return
        threads = product(thread, self.rows)
        if np.isnan(block).all() and not np.isnan(threads).all():
            main.splits[0].reduces = True
            self.nest.across = threads


def _widest(old: Floats | None, new: Floats) -> Floats:
    return new if old is None else np.fmax(old, new)


def ansor_nest(group: CandidateGroup) -> Nest:
    """Replay a sketch's steps for all candidates of a group at once."""
    return _Replay(group).run()
