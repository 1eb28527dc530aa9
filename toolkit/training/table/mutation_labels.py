"""Labels of mutation models: recorded gains by knob, by rule, and by knob and way.

A *choice* is one direction that was recorded for a candidate. At the level ``knob`` a direction is
"another value of this knob"; at ``rule`` it is "another value of any knob of this kind"; at ``way``
ordered knobs go up or down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toolkit.features.task.hardware import is_gpu
from toolkit.logs.formats import format_named
from toolkit.records import Sketch, Task, iter_ways
from toolkit.training.arrays import Floats, Ints
from toolkit.training.table.neighbours import ANY, DOWN, UP, Gains, direction_gains
from toolkit.training.table.table import MeasuredGroup

RULE_WEIGHTS: dict[str, dict[str, float]] = {
    # TVM 0.16 src/auto_scheduler/search_policy/sketch_policy.cc, node->mutation_rules
    "ansor/cpu": {"tile": 0.90, "unroll": 0.04, "compute_location": 0.05, "parallel": 0.01},
    "ansor/gpu": {"tile": 0.90, "unroll": 0.10},
    # TVM 0.27 src/s_tir/meta_schedule/mutator/mutator.cc, Mutator::DefaultLLVM and DefaultCUDA
    "metaschedule/cpu": {"tile": 0.90, "compute_location": 0.05, "unroll": 0.03, "parallel": 0.02},
    "metaschedule/gpu": {"tile": 0.90, "unroll": 0.08, "thread_binding": 0.02},
}
OTHER_WEIGHT = 0.02
"""Weight of rules that TVM's search does not have."""


@dataclass(frozen=True)
class Choices:
    """Directions at one level, one column each; a name means the same in all tasks.

    Names are, for example, ``tile:tile_oc``, ``tile``, ``tile:tile_oc:up``. ``gain`` is
    ``(n, directions)``: mean gain over recorded neighbours (NaN: none recorded).
    """

    names: tuple[str, ...]
    rules: tuple[str, ...]
    gain: Floats


def choices(sketch: Sketch, gains: Gains, level: str) -> Choices:
    """Return gains by the directions of a level."""
    found: list[tuple[str, str, Floats]] = []
    if level == "rule":
        for rule in dict.fromkeys(knob.kind for knob in sketch.knobs):
            own = [k for k, knob in enumerate(sketch.knobs) if knob.kind == rule]
            number = gains.count[ANY][:, own].astype(np.int64)
            summed = np.nansum(gains.gain[ANY][:, own] * number, axis=1)
            total = number.sum(axis=1)
            mean = np.where(total > 0, summed / np.maximum(total, 1), np.nan)
            found.append((rule, rule, mean))
    else:
        for k, knob in enumerate(sketch.knobs):
            ordered = level == "way" and any(iter_ways(knob))
            for way, word in ((UP, ":up"), (DOWN, ":down")) if ordered else ((ANY, ""),):
                name = f"{knob.kind}:{knob.name}{word}"
                found.append((name, knob.kind, gains.gain[way][:, k]))
    if not found:
        return Choices((), (), np.zeros((gains.gain.shape[1], 0)))
    names, rules, gain = zip(*found, strict=True)
    return Choices(names, rules, np.column_stack(gain))


def rule_weights(task: Task, rules: Sequence[str]) -> Floats:
    """TVM's fixed weight of each direction's rule.

    AutoTVM and other formats without mutation rules use MetaSchedule's weights.
    """
    family = format_named(task.format).mutation_weights
    table = RULE_WEIGHTS[f"{family}/{'gpu' if is_gpu(task) else 'cpu'}"]
    return np.array([table.get(rule, OTHER_WEIGHT) for rule in rules])


@dataclass(frozen=True)
class LabelledGroup(MeasuredGroup):
    """One task and sketch with its recorded gains."""

    gains: Gains


def label_group(measured: MeasuredGroup) -> LabelledGroup:
    """Find the recorded neighbours of a group's candidates, and compute their gains."""
    group, latency_s = measured.group, measured.latency_s
    gains = direction_gains(group.sketch, group.decisions, latency_s)
    return LabelledGroup(group, latency_s, gains)


def best_rules(labelled: LabelledGroup, tie: float) -> tuple[Ints, list[str]]:
    """Return the paper's labels: the rule that gains most; of near equals, TVM's heaviest one.

    Returns rows (candidates with two or more recorded rules) and one rule for each.
    """
    group = labelled.group
    found = choices(group.sketch, labelled.gains, "rule")
    known = np.isfinite(found.gain)
    rows = np.flatnonzero(known.sum(axis=1) >= 2)
    if len(rows) == 0:
        return rows, []
    gain = np.where(known[rows], found.gain[rows], -np.inf)
    near = gain >= gain.max(axis=1, keepdims=True) - tie
    best = np.where(near, rule_weights(group.task, found.rules), -1.0).argmax(axis=1)
    return rows, [found.rules[b] for b in best.tolist()]
