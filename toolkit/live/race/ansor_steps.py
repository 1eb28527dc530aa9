"""Ansor's programs as lists of steps that can be read and changed.

A script for Python 3.7 or later with a TVM that has ``auto_scheduler``. Ansor's own mutations are
C++ that Python cannot call. But its records are text: this script changes a step in the text, and
TVM builds the program again. The rules and their weights are those of ``sketch_policy_rules.cc``
in TVM 0.8 to 0.19, for CPUs. They move a factor of a tile, change the unrolling depth or the loop
at which a stage is computed, or change how many loops run in parallel.
"""

from __future__ import annotations

import json
from typing import Any

RULES = ("tile", "unroll", "compute_location", "parallel")
WEIGHTS = (0.90, 0.04, 0.05, 0.01)
"""How often Ansor draws each rule."""

MOST_INNERMOST = 64
UNROLLED = (0, 16, 64, 512)
PARALLEL = 3  # the annotation's number in a record


class AnsorProgram:
    """A state of Ansor's search, and the steps of its record."""

    def __init__(self, state: Any, record: dict[str, Any]) -> None:
        self.state = state
        self.record = record
        self.key = json.dumps(self.steps)
        """Equal programs have equal texts."""

    @property
    def steps(self) -> list[Any]:
        """The record's steps, as lists."""
        found: list[Any] = self.record["i"][1][1]
        return found

    @property
    def sketch(self) -> str:
        """Return what Ansor fixes before annotation: the steps up to the last split, no sizes."""
        steps = self.steps
        last = max((n for n, step in enumerate(steps) if step[0] in _SPLITS), default=-1)
        return json.dumps([_structure(step) for step in steps[: last + 1]])


_SPLITS = ("SP", "FSP", "FFSP")


def _structure(step: list[Any]) -> list[Any]:
    """Return a step without random choices of the annotation: tile sizes, places, annotations."""
    if step[0] == "SP":
        return [step[0], step[1], step[2], len(step[4])]
    if step[0] == "CA":
        return list(step[:2])
    return list(step)


def programs_of(task: Any, states: Any) -> list[AnsorProgram]:
    """Return the programs of states with known bounds, in the same order."""
    from tvm.auto_scheduler.measure import MeasureInput, MeasureResult
    from tvm.auto_scheduler.measure_record import dump_record_to_string

    result = MeasureResult([1.0], 0, "", 0.0, 0)
    found = []
    for state in states:
        raw = getattr(state, "state_object", state)
        text = dump_record_to_string(MeasureInput(task, raw), result)
        found.append(AnsorProgram(raw, json.loads(text)))
    return found


def mutated(task: Any, program: AnsorProgram, rule: str, rng: Any) -> AnsorProgram | None:
    """Return a program changed by a rule at a random place; ``None`` if that is not possible."""
    from tvm.auto_scheduler.measure_record import load_record_from_string

    record = json.loads(json.dumps(program.record))
    if not CHANGES[rule](record["i"][1][1], rng):
        return None
    try:
        given, _ = load_record_from_string(json.dumps(record))
        state = task.compute_dag.infer_bound_from_state(given.state)
    except Exception:
        return None  # TVM refuses these steps
    return AnsorProgram(getattr(state, "state_object", state), record)


def _tile(steps: list[Any], rng: Any) -> bool:
    """Move a factor from one level of a split to another."""
    splits = [s for s in steps if s[0] == "SP" and s[3] > 1 and s[4] and s[4][-1] <= MOST_INNERMOST]
    if not splits:
        return False
    step = splits[rng.integers(len(splits))]
    inner = 1
    for length in step[4]:
        inner *= length
    sizes = [max(1, step[3] // inner), *step[4]]
    order = rng.permutation(len(sizes)).tolist()
    for place, source in enumerate(order):
        target = order[(place + 1) % len(order)]
        factors = [f for f in range(2, sizes[source] + 1) if sizes[source] % f == 0]
        if target == len(sizes) - 1:
            factors = [f for f in factors if f * sizes[target] <= MOST_INNERMOST]
        if not factors:
            continue
        factor = factors[rng.integers(len(factors))]
        sizes[source] //= factor
        sizes[target] *= factor
        step[4] = sizes[1:]
        return True
    return False


def _unroll(steps: list[Any], rng: Any) -> bool:
    """Change the unrolling depth of one stage."""
    found = [step for step in steps if step[0] == "PR" and "auto_unroll_max_step" in step[3]]
    if not found:
        return False
    step = found[rng.integers(len(found))]
    name, _, now = step[3].partition("$")
    others = [depth for depth in UNROLLED if str(depth) != now]
    step[3] = f"{name}${others[rng.integers(len(others))]}"
    return True


def _compute_location(steps: list[Any], rng: Any) -> bool:
    """Compute a stage at another loop of its consumer stage."""
    found = [step for step in steps if step[0] == "CA"]
    if not found:
        return False
    step = found[rng.integers(len(found))]
    # The loops into which the consumer was split by then; TVM refuses loops beyond them.
    loops = max([s[3] for s in found] + [len(s[2]) for s in steps if s[0] == "RE"])
    others = [loop for loop in range(loops) if loop != step[3]]
    if not others:
        return False
    step[3] = others[rng.integers(len(others))]
    return True


def _parallel(steps: list[Any], rng: Any) -> bool:
    """Fuse one loop more or one loop less into the parallel loop."""
    found = [
        n
        for n in range(1, len(steps))
        if steps[n][0] == "AN"
        and steps[n][3] == PARALLEL
        and steps[n - 1][0] == "FU"
        and steps[n - 1][1] == steps[n][1]
    ]
    if not found:
        return False
    place = found[rng.integers(len(found))]
    fused = steps[place - 1]
    change = 1 if len(fused[2]) <= 2 or rng.random() < 0.5 else -1
    fused[2] = list(range(len(fused[2]) + change))
    for step in steps[place + 1 :]:
        # The loops after the fused loop have new numbers.
        if step[0] in ("AN", "PR") and step[1] == fused[1] and step[2] > 0:
            step[2] -= change
        elif step[0] == "CA" and step[2] == fused[1] and step[3] > 0:
            step[3] -= change
    return True


CHANGES = dict(zip(RULES, (_tile, _unroll, _compute_location, _parallel)))  # noqa: B905 - Python 3.7
