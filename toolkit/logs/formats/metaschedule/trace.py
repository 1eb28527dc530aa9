"""Read MetaSchedule traces into skeleton, knobs and decisions.

A trace is ``[[instruction, ...], [[instruction index, decision], ...]]``, an instruction
``[kind, inputs, attributes, outputs]`` (TVM ``src/tir/schedule/trace.cc``, ``AsJSON``). The
instructions after ``EnterPostproc`` were added by postprocessors, not chosen.

Decisions: ``SamplePerfectTile`` (and similar) has a list of factors, outermost first;
``SampleCategorical`` has an index into the instruction's choices (kept here as the chosen value);
``SampleComputeLocation`` has a loop index (-1 root, -2 inlined). The limits in ``Annotate``
instructions for parallel and vectorised loops are decisions, too: the parallel mutator changes
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from toolkit.logs.rows.base import INT64_MAX, BadLine, word_code
from toolkit.logs.rows.identity import KnobList, labels_of, make_sketch
from toolkit.records import KnobKind, Sketch

FORMAT = "metaschedule"

_LIMITS: dict[str, KnobKind] = {
    "meta_schedule.parallel": "parallel",
    "meta_schedule.vectorize": "vectorize",
}
_ANNOTATIONS: dict[str, tuple[str, KnobKind]] = {
    "meta_schedule.unroll_explicit": ("unroll", "unroll"),
    "meta_schedule.unroll_implicit": ("unroll", "unroll"),
    "meta_schedule.cooperative_fetch": ("vectorize", "vectorize"),
}


@dataclass(frozen=True, slots=True)
class _Slot:
    """Source of a knob's value: a decision of an instruction, or an annotated limit."""

    instruction: int
    kind: KnobKind
    width: int
    choices: tuple[Any, ...] = ()
    codes: tuple[int, ...] | None = None
    limit: int | None = None


class Skeleton:
    """The sketch of an instruction list, and how to put decisions into its vector."""

    def __init__(self, sketch: Sketch, slots: tuple[_Slot, ...]) -> None:
        self.sketch = sketch
        self._slots = slots
        self._decided = [slot.instruction for slot in slots if slot.limit is None]

    @property
    def instructions(self) -> tuple[int, ...]:
        """For each knob of the sketch, the index of the instruction that decides it."""
        return tuple(slot.instruction for slot in self._slots)

    def decide(self, decisions: Any) -> tuple[int, ...]:
        """Return a trace's decisions in the layout of the sketch's knobs; raise ``BadLine``."""
        if not isinstance(decisions, list):
            raise BadLine("the decisions are not a list")
        for pair in decisions:
            if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) is not int:
                raise BadLine("a decision is not [instruction, value]")
        if [pair[0] for pair in decisions] != self._decided:  # another order or other instructions
            given = {pair[0]: pair for pair in decisions}
            for instruction in self._decided:
                if instruction not in given:
                    raise BadLine(f"instruction {instruction} has no decision")
            for instruction in given:
                if instruction not in self._decided:
                    raise BadLine(f"instruction {instruction} takes no decision")
            decisions = [given[instruction] for instruction in self._decided]
        values = iter(decisions)
        flat: list[int] = []
        for slot in self._slots:
            if slot.limit is not None:
                flat.append(slot.limit)
                continue
            value = next(values)[1]
            if slot.kind == "tile":
                if not isinstance(value, list) or len(value) != slot.width:
                    raise BadLine(f"instruction {slot.instruction} needs {slot.width} factors")
                flat += value
            elif slot.codes is None:
                flat.append(value)
            elif type(value) is int and 0 <= value < len(slot.codes):
                flat.append(slot.codes[value])
            else:
                raise BadLine(f"instruction {slot.instruction} has no choice {str(value)[:40]}")
        if not all(type(part) is int and abs(part) <= INT64_MAX for part in flat):
            raise BadLine("a decision is not a 64-bit integer")
        if min(flat, default=1) < 1:
            for slot, knob in zip(self._slots, self.sketch.knobs, strict=True):
                factors = flat[knob.offset : knob.offset + knob.width]
                if slot.kind == "tile" and min(factors, default=1) < 1:
                    raise BadLine(f"a factor of instruction {slot.instruction} is not positive")
        return tuple(flat)


def check_instructions(instructions: Any) -> None:
    """Raise ``BadLine`` if instructions do not have the right layout."""
    if not isinstance(instructions, list):
        raise BadLine("the instructions are not a list")
    for instruction in instructions:
        if not (
            isinstance(instruction, list)
            and len(instruction) == 4
            and isinstance(instruction[0], str)
            and all(isinstance(part, list) for part in instruction[1:])
        ):
            raise BadLine("an instruction is not [kind, inputs, attributes, outputs]")


def chosen(instructions: list[Any]) -> list[Any]:
    """Return the instructions before ``EnterPostproc``."""
    for place, instruction in enumerate(instructions):
        if instruction[0] == "EnterPostproc":
            return instructions[:place]
    return instructions


def read_skeleton(instructions: Any) -> Skeleton:
    """Read the instructions of a trace up to ``EnterPostproc``; raise ``BadLine``."""
    check_instructions(instructions)
    reader = _SkeletonReader()
    for index, instruction in enumerate(chosen(instructions)):
        reader.take(index, *instruction)
    return reader.finish()


class _SkeletonReader:
    """Follows blocks and loops through a trace, to name knobs after them."""

    def __init__(self) -> None:
        self._skeleton: list[Any] = []
        self._slots: list[_Slot] = []
        self._names: list[str] = []
        self._blocks: dict[str, str] = {}
        self._loops: dict[str, str] = {}
        self._random: dict[str, int] = {}

    def take(
        self, index: int, kind: str, inputs: list[Any], attrs: list[Any], outputs: list[Any]
    ) -> None:
        # TVM 0.27 renamed blocks; the decisions are the same.
        kind = kind.replace("SBlock", "Block")
        told = inputs, attrs
        if kind.startswith("Sample"):
            told = self._sample(index, kind, inputs, attrs, outputs)
        elif kind == "Annotate" and len(inputs) == 2 and len(attrs) == 1:
            told = self._annotate(index, inputs[0], inputs[1], attrs), attrs
        else:
            self._follow(kind, inputs, attrs, outputs)
        self._skeleton.append([kind, *told, outputs])

    def _decide(self, name: str, slot: _Slot) -> None:
        self._names.append(name)
        self._slots.append(slot)

    def _rename(self, at: int, name: str, kind: KnobKind) -> None:
        self._names[at] = name
        self._slots[at] = replace(self._slots[at], kind=kind)

    def _sample(
        self, index: int, kind: str, inputs: list[Any], attrs: list[Any], outputs: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        first = str(inputs[0]) if inputs else ""
        if kind == "SampleCategorical":
            if not attrs or not isinstance(attrs[0], list) or not attrs[0]:
                raise BadLine("SampleCategorical has no choices")
            choices = attrs[0]
            self._random.update({str(out): len(self._slots) for out in outputs})
            codes = tuple(map(word_code, choices))
            self._decide("categorical", _Slot(index, "categorical", 1, tuple(choices), codes))
            # The probabilities affect the sampling, not the possible choices.
            return inputs, [choices]
        if kind == "SampleComputeLocation":
            block = self._blocks.get(first, first)
            self._decide(f"location:{block}", _Slot(index, "compute_location", 1))
            self._loops.update({str(out): f"location:{first}" for out in outputs})
        else:
            loop = self._loops.get(first, first)
            self._decide(f"tile:{loop}", _Slot(index, "tile", len(outputs)))
        return inputs, attrs

    def _annotate(self, index: int, target: Any, value: Any, attrs: list[Any]) -> list[Any]:
        """Read an annotation; return its inputs without a limit that is a decision."""
        key, name = attrs[0], str(target)
        block = self._blocks.get(name, self._loops.get(name, name))
        if key in _LIMITS and type(value) is int and abs(value) <= INT64_MAX:
            kind = _LIMITS[key]
            self._decide(f"{kind}:{block}", _Slot(index, kind, 1, limit=value))
            return [target, None]
        if isinstance(value, str) and value in self._random:
            word, kind = _ANNOTATIONS.get(str(key), (str(key), "categorical"))
            self._rename(self._random[value], f"{word}:{block}", kind)
        return [target, value]

    def _follow(self, kind: str, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        source = str(inputs[0]) if inputs else ""
        block, loop = self._blocks.get(source, source), self._loops.get(source, source)
        if kind == "GetBlock" and attrs:
            self._blocks.update({str(out): str(attrs[0]) for out in outputs})
        elif kind == "GetLoops":
            self._loops.update({str(out): f"{block}:i{n}" for n, out in enumerate(outputs)})
        elif kind in ("CacheRead", "CacheWrite", "ReadAt", "WriteAt", "ReIndex"):
            label = f"{block}.{kind}{''.join(f'.{a}' for a in attrs)}".lower()
            self._blocks.update({str(out): label for out in outputs})
        elif kind in ("Split", "Fuse", "AddUnitLoop"):
            self._loops.update({str(out): f"{loop}.{n}" for n, out in enumerate(outputs)})
            for factor in inputs[1:]:
                at = self._random.get(factor) if isinstance(factor, str) else None
                if at is not None and self._slots[at].kind == "categorical":
                    self._rename(at, f"threads:{loop}", "thread_binding")
        else:
            for n, out in enumerate(outputs):
                if isinstance(out, str) and out.startswith("b"):
                    self._blocks[out] = f"{block}.{kind.lower()}{n}"

    def finish(self) -> Skeleton:
        """Name the knobs and make the sketch."""
        knobs = KnobList()
        for name, slot in zip(self._names, self._slots, strict=True):
            knobs.add(name, slot.kind, slot.width, slot.codes, labels_of(slot.choices))
        return Skeleton(make_sketch(FORMAT, self._skeleton, knobs.knobs), tuple(self._slots))
