"""Compute locations as TVM takes them: a decision names a loop, and that loop may not exist.

TVM replaces a sampled compute location by the nearest possible one at or above it (observed for
``SampleComputeLocation``, TVM 0.27). Loops of extent 1 do not count, and below a reduction loop
only reduction loops do. With other tiles, other loops have extent 1, so the same decision means
another place. This module reads from the splits of a sketch's trace which tile factor each loop
has, and checks the result by asking TVM about a few random programs.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import Schedule

from toolkit.live.space.choices import Trace, redrawn, without_postprocessors
from toolkit.live.space.programs import decisions_of, replay_trace

INLINE, ROOT = -2, -1
# Below every loop.
DEEPEST = 1_000

# Random programs that TVM is asked about. Each question applies the trace once (milliseconds).
PROBES = 3

# TVM's number for a reduction iteration.
_REDUCTION = 2


@dataclass(frozen=True)
class LocatedLoop:
    """A loop at which a block may be computed, and whether it is a reduction loop.

    ``extent`` is a number if it is the same in all programs. Else it is the position of a tile's
    instruction and the index of its factor.
    """

    extent: int | tuple[int, int]
    reduces: bool

    def exists(self, tiles: dict[int, Any]) -> bool:
        """Whether the loop has more than one iteration."""
        if isinstance(self.extent, int):
            return self.extent > 1
        position, level = self.extent
        return bool(tiles[position][level] > 1)


@dataclass(frozen=True)
class Locations:
    """The first compute location of a sketch's programs (later ones depend on it).

    ``position`` is its instruction in the trace. ``loops`` are the possible loops, outermost
    first. ``inline`` says whether the block can be inlined.
    """

    position: int
    loops: tuple[LocatedLoop, ...]
    inline: bool

    def possible(self, tiles: dict[int, Any]) -> list[int]:
        """Return the loops, by number, that exist with these tiles and can hold the block."""
        found: list[int] = []
        reduced = False
        for place, loop in enumerate(self.loops):
            if not loop.exists(tiles):
                continue
            if reduced and not loop.reduces:
                break
            reduced |= loop.reduces
            found.append(place)
        return found

    def values(self, tiles: dict[int, Any]) -> list[int]:
        """Return all locations that are possible with these tiles."""
        return [*([INLINE] if self.inline else []), ROOT, *self.possible(tiles)]

    def taken(self, wanted: int, tiles: dict[int, Any]) -> int:
        """Return the location that TVM takes for a wanted one."""
        if wanted == INLINE and self.inline:
            return INLINE
        return max((place for place in self.possible(tiles) if place <= wanted), default=ROOT)

    def settled(self, chosen: Trace) -> Trace:
        """Return the trace with the location that TVM takes."""
        instructions, decisions = chosen
        values = dict(decisions)
        found = self.taken(int(values[self.position]), values)
        if found == values[self.position]:
            return chosen
        settled = [[p, found if p == self.position else value] for p, value in decisions]
        return [instructions, settled]


def learn_locations(module: tvm.IRModule, design: Trace) -> Locations | None:
    """Learn a sketch's locations from one of its programs.

    ``None`` if the sketch has none, or if the learned rule does not agree with TVM.
    """
    instructions, _ = without_postprocessors(design)
    wanted = (n for n, one in enumerate(instructions) if one[0] == "SampleComputeLocation")
    if (position := next(wanted, None)) is None:
        return None
    rng = np.random.default_rng(0)
    probes = [without_postprocessors(redrawn(design, rng)) for _ in range(PROBES)]
    nests = {_nest(module, probe, position) for probe in probes}
    tiles = [dict(probe[1]) for probe in probes]
    inline = {_ask(module, probe, position, INLINE) == INLINE for probe in probes[:2]}
    loops = nests.pop()
    if loops is None or nests or len(inline) != 1:
        return None
    whole = Locations(position, loops, inline.pop())
    deepest = [_ask(module, probe, position, DEEPEST) for probe in probes]
    # If TVM did not take a location that should be possible, it and those below are out of reach.
    reach = min(
        (
            place
            for mine, last in zip(tiles, deepest, strict=True)
            for place in whole.possible(mine)
            if last is not None and place > last
        ),
        default=len(loops),
    )
    learned = Locations(position, loops[:reach], whole.inline)
    for probe, mine, last in zip(probes, tiles, deepest, strict=True):
        somewhere = int(rng.integers(len(loops) + 1))
        if learned.taken(DEEPEST, mine) != last or learned.taken(somewhere, mine) != _ask(
            module, probe, position, somewhere
        ):
            return None
    return learned


def _before(trace: Trace, position: int) -> list[Any]:
    return [decision for decision in trace[1] if decision[0] < position]


def _nest(module: tvm.IRModule, trace: Trace, position: int) -> tuple[LocatedLoop, ...] | None:
    """Return the loops around the only consumer of the block; ``None`` if that is not possible."""
    schedule = replay_trace(module, [trace[0][:position], _before(trace, position)])
    if schedule is None:
        return None
    block = trace[0][position][1][0]
    made, number = next(
        (place, outputs.index(block))
        for place, (_, _, _, outputs) in enumerate(trace[0][:position])
        if block in outputs
    )
    consumers = schedule.get_consumers(schedule.trace.insts[made].outputs[number])
    if len(consumers) != 1:
        return None
    references = schedule.get_loops(consumers[0])
    loops = [schedule.get(loop) for loop in references]
    realised: Any = getattr(loops[-1], "body", None) if loops else None
    if not hasattr(realised, "iter_values"):
        return None
    bound = zip(realised.block.iter_vars, realised.iter_values, strict=True)
    values = " ".join(str(value) for one, value in bound if int(one.iter_type) == _REDUCTION)
    reduced = set(re.findall(r"\w+", values))
    factors = _factors(trace[0][:position], schedule)
    found = []
    for reference, loop in zip(references, loops, strict=True):
        tile = factors.get(hash(schedule.get_sref(reference)))
        found.append(LocatedLoop(tile or int(loop.extent), loop.loop_var.name in reduced))
    return tuple(found)


def _factors(instructions: list[Any], schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Return, by loop, the tile factor that it was split by: instruction position and level.

    Loops are identified by the hash of TVM's reference, which is valid as long as the loop exists.
    """
    sampled = {
        variable: (position, level)
        for position, (kind, _, _, outputs) in enumerate(instructions)
        if kind == "SamplePerfectTile"
        for level, variable in enumerate(outputs)
    }
    found = {}
    for position, (kind, inputs, _, _) in enumerate(instructions):
        if kind != "Split":
            continue
        for variable, loop in zip(inputs[1:], schedule.trace.insts[position].outputs, strict=True):
            with contextlib.suppress(Exception):  # a loop that was fused with another is gone
                found[hash(schedule.get_sref(loop))] = sampled[variable]
    return found


def _ask(module: tvm.IRModule, trace: Trace, position: int, wanted: int) -> int | None:
    """Return the location that TVM takes for a wanted one; ``None`` if TVM refuses it."""
    decisions = [*_before(trace, position), [position, wanted]]
    schedule = replay_trace(module, [trace[0][: position + 1], decisions])
    return None if schedule is None else int(decisions_of(schedule, [position])[0][1])
