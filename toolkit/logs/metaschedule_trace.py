"""MetaSchedule traces → skeleton, knobs and decisions.

A trace is ``[[instruction, ...], [[instruction index, decision], ...]]``, an instruction
``[kind, inputs, attributes, outputs]`` (TVM ``src/tir/schedule/trace.cc``, ``AsJSON``). What
stands behind ``EnterPostproc`` was added by postprocessors, not chosen.

Decisions: ``SamplePerfectTile`` (and its kin) a list of factors, outermost first;
``SampleCategorical`` an index into the instruction's choices (kept here as the chosen value);
``SampleComputeLocation`` a loop index (-1 root, -2 inlined). The limits in ``Annotate``
instructions for parallel and vectorised loops are decisions as well: the parallel mutator
changes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.logs.base import INT64_MAX, BadLine, word_code
from toolkit.logs.identity import KnobList, make_sketch
from toolkit.records import KnobKind, Sketch, canonical_json

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
    """Where a knob's value comes from: a decision of an instruction, or an annotated limit."""

    instruction: int
    kind: KnobKind
    width: int
    choices: tuple[Any, ...] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Skeleton:
    """An instruction list read once: its sketch, and how to read decisions into its vector."""

    sketch: Sketch
    slots: tuple[_Slot, ...]

    def decide(self, decisions: Any) -> tuple[int, ...]:
        """Lay a trace's decisions out as the sketch's knobs say; raise ``BadLine``."""
        if not isinstance(decisions, list):
            raise BadLine("the decisions are not a list")
        given: dict[Any, Any] = {}
        for pair in decisions:
            if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) is not int:
                raise BadLine("a decision is not [instruction, value]")
            given[pair[0]] = pair[1]
        flat: list[int] = []
        for slot in self.slots:
            if slot.limit is not None:
                flat.append(slot.limit)
                continue
            if slot.instruction not in given:
                raise BadLine(f"instruction {slot.instruction} has no decision")
            flat.extend(_parts(slot, given.pop(slot.instruction)))
        if given:
            raise BadLine(f"instruction {next(iter(given))} takes no decision")
        return tuple(flat)


def _parts(slot: _Slot, value: Any) -> list[int]:
    if slot.kind == "tile":
        if not isinstance(value, list) or len(value) != slot.width:
            raise BadLine(f"the tile of instruction {slot.instruction} has not its factors")
        if not all(type(part) is int and 0 <= part <= INT64_MAX for part in value):
            raise BadLine(f"a factor of instruction {slot.instruction} is not an integer")
        return list(value)
    if type(value) is not int or abs(value) > INT64_MAX:
        raise BadLine(f"the decision of instruction {slot.instruction} is not an integer")
    if slot.choices is None:
        return [value]
    if not 0 <= value < len(slot.choices):
        raise BadLine(f"instruction {slot.instruction} has no choice {value}")
    return [word_code(slot.choices[value])]


def read_skeleton(instructions: Any) -> Skeleton:
    """Read the instructions of a trace up to ``EnterPostproc``; raise ``BadLine``."""
    if not isinstance(instructions, list):
        raise BadLine("the instructions are not a list")
    reader = _SkeletonReader()
    for index, instruction in enumerate(instructions):
        if not (
            isinstance(instruction, list)
            and len(instruction) == 4
            and isinstance(instruction[0], str)
            and all(isinstance(part, list) for part in instruction[1:])
        ):
            raise BadLine("an instruction is not [kind, inputs, attributes, outputs]")
        if instruction[0] == "EnterPostproc":
            break
        reader.take(index, *instruction)
    return reader.finish()


class _SkeletonReader:
    """Follows names through a trace, so that knobs are called after blocks and loops."""

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
        """Read one instruction."""
        # TVM 0.27 renamed blocks; the choice that is made is the same.
        kind = kind.replace("SBlock", "Block")
        if kind.startswith("Sample"):
            self._sample(index, kind, inputs, attrs, outputs)
            return
        if kind == "Annotate" and len(inputs) == 2 and len(attrs) == 1:
            self._annotate(index, inputs, attrs, outputs)
            return
        self._follow(kind, inputs, attrs, outputs)
        self._skeleton.append([kind, inputs, attrs, outputs])

    def _sample(
        self, index: int, kind: str, inputs: list[Any], attrs: list[Any], outputs: list[Any]
    ) -> None:
        first = str(inputs[0]) if inputs else ""
        if kind == "SampleCategorical":
            if not attrs or not isinstance(attrs[0], list) or not attrs[0]:
                raise BadLine("SampleCategorical has no choices")
            self._random.update({str(out): len(self._slots) for out in outputs})
            self._slots.append(_Slot(index, "categorical", 1, tuple(attrs[0])))
            self._names.append("categorical")
            # The probabilities steer the sampling, they do not change what can be chosen.
            self._skeleton.append([kind, inputs, [attrs[0]], outputs])
            return
        if kind == "SampleComputeLocation":
            self._slots.append(_Slot(index, "compute_location", 1))
            self._names.append(f"location:{self._blocks.get(first, first)}")
            self._loops.update({str(out): f"location:{first}" for out in outputs})
        else:
            self._slots.append(_Slot(index, "tile", len(outputs)))
            loop = self._loops.get(first, first)
            self._names.append(f"tile:{loop}")
        self._skeleton.append([kind, inputs, attrs, outputs])

    def _annotate(
        self, index: int, inputs: list[Any], attrs: list[Any], outputs: list[Any]
    ) -> None:
        target, value = inputs
        key = attrs[0]
        block = self._blocks.get(str(target), self._loops.get(str(target), str(target)))
        if key in _LIMITS and type(value) is int and abs(value) <= INT64_MAX:
            self._slots.append(_Slot(index, _LIMITS[key], 1, limit=value))
            self._names.append(f"{_LIMITS[key]}:{block}")
            value = None
        elif isinstance(value, str) and value in self._random:
            at = self._random[value]
            word, kind = _ANNOTATIONS.get(str(key), (str(key), "categorical"))
            slot = self._slots[at]
            self._slots[at] = _Slot(slot.instruction, kind, 1, slot.choices)
            self._names[at] = f"{word}:{block}"
        self._skeleton.append(["Annotate", [target, value], attrs, outputs])

    def _follow(self, kind: str, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        source = str(inputs[0]) if inputs else ""
        if kind == "GetBlock" and attrs:
            self._blocks.update({str(out): str(attrs[0]) for out in outputs})
        elif kind == "GetLoops":
            block = self._blocks.get(source, source)
            self._loops.update({str(o): f"{block}:i{n}" for n, o in enumerate(outputs)})
        elif kind in ("CacheRead", "CacheWrite", "ReadAt", "WriteAt", "ReIndex"):
            block = self._blocks.get(source, source)
            label = f"{block}.{kind}{''.join(f'.{a}' for a in attrs)}".lower()
            self._blocks.update({str(out): label for out in outputs})
        elif kind in ("Split", "Fuse", "AddUnitLoop"):
            loop = self._loops.get(source, source)
            self._loops.update({str(o): f"{loop}.{n}" for n, o in enumerate(outputs)})
            for factor in inputs[1:]:
                at = self._random.get(factor) if isinstance(factor, str) else None
                if at is not None and self._slots[at].kind == "categorical":
                    slot = self._slots[at]
                    self._slots[at] = _Slot(slot.instruction, "thread_binding", 1, slot.choices)
                    self._names[at] = f"threads:{loop}"
        else:
            base = self._blocks.get(source, source)
            for n, out in enumerate(outputs):
                if isinstance(out, str) and out.startswith("b"):
                    self._blocks[out] = f"{base}.{kind.lower()}{n}"

    def finish(self) -> Skeleton:
        """Name the knobs and make the sketch."""
        knobs = KnobList()
        for name, slot in zip(self._names, self._slots, strict=True):
            choices = labels = None
            if slot.choices is not None:
                choices = tuple(word_code(choice) for choice in slot.choices)
                labels = tuple(
                    (word_code(choice), canonical_json(choice).decode())
                    for choice in slot.choices
                    if type(choice) is not int
                )
            knobs.add(name, slot.kind, slot.width, choices, labels or ())
        return Skeleton(make_sketch(FORMAT, self._skeleton, knobs.knobs), tuple(self._slots))
