"""Immutable objects for the content of a tuning log; every layer uses them.

A *task* is one workload on one target (and machine). A *sketch* is a schedule with its
decisions removed. A *knob* is one decision of a sketch. A *candidate* is a sketch and a value
for each knob. A *mutation direction* is (rule, knob, way). Two candidates are *neighbours*
when exactly one decision differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import orjson

KnobKind = Literal[
    "tile",  # an ordered factorisation of a loop extent, outermost factor first
    "unroll",  # maximal step of automatic unrolling, or an explicit unroll switch
    "vectorize",  # vector length, or maximal vectorised extent
    "parallel",  # number of fused loops, or maximal parallel extent
    "compute_location",  # the loop at which a stage is computed (-1 root, -2 inlined)
    "thread_binding",  # extent or index of a bound thread axis
    "categorical",  # any other choice: numbers as they are, words as a stable code
]


SEED_MAX = 2_000_000_000
"""Largest seed: libraries store seeds in 32 bits, and add to them."""

MACHINE_FINGERPRINT = "machine_fingerprint"
"""Label of a source, and key in ``collection.json``, that identifies the measured machine."""

EMULATOR = "emulator"
"""Label of a source, and key in a fingerprint, if an emulator measured.

Its records train no model: an emulator's times say nothing about the processor.
"""


class TrialState(str, Enum):
    """Outcome of a measurement; only ``OK`` has a latency.

    Codes 0 to 8 are the error numbers that AutoTVM (``measure.py``, ``MeasureErrorNo``) and
    Ansor (``auto_scheduler/measure.py``, ``MeasureErrorNo``) share.
    """

    OK = "ok"
    INSTANTIATION = "instantiation"
    COMPILE = "compile"
    RUNTIME = "runtime"
    WRONG_ANSWER = "wrong_answer"
    BUILD_TIMEOUT = "build_timeout"
    RUN_TIMEOUT = "run_timeout"
    UNKNOWN = "unknown"


ERROR_NUMBER_STATES: dict[int, TrialState] = {
    0: TrialState.OK,
    1: TrialState.INSTANTIATION,
    2: TrialState.COMPILE,
    3: TrialState.COMPILE,
    4: TrialState.RUNTIME,
    5: TrialState.WRONG_ANSWER,
    6: TrialState.BUILD_TIMEOUT,
    7: TrialState.RUN_TIMEOUT,
    8: TrialState.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Knob:
    """One decision of a sketch, and where its value lies in the flat decision vector.

    Attributes
    ----------
    name
        Stable inside a sketch and meaningful across tasks (``tile_oc``, ``SP:s3:i0``).
    kind
        What is decided; also the mutation rule that changes it.
    offset, width
        The knob's parts are ``decisions[offset:offset + width]``. A tile knob has one part per
        level, outermost first. The outermost part follows from the loop extent (it is 0 if the
        log does not give the extent), so two tile values are the same decision when all other
        parts agree.
    choices
        The possible values, if the log lists them (not always ascending).
    labels
        Words that the codes of a categorical knob stand for, as (code, word) pairs.
    """

    name: str
    kind: KnobKind
    offset: int
    width: int
    choices: tuple[int, ...] | None = None
    labels: tuple[tuple[int, str], ...] = ()

    @property
    def free(self) -> slice:
        """The parts that are chosen: all parts except a tile's outermost factor."""
        first = self.offset + 1 if self.kind == "tile" and self.width > 1 else self.offset
        return slice(first, self.offset + self.width)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A schedule with its decisions removed; shared by all tasks with the same skeleton."""

    sketch_id: str
    format: str
    skeleton: str
    knobs: tuple[Knob, ...]

    @property
    def width(self) -> int:
        """Length of the flat decision vector."""
        return sum(knob.width for knob in self.knobs)

    def knob(self, name: str) -> Knob:
        """Return the knob of that name; raise ``KeyError`` when there is none."""
        for knob in self.knobs:
            if knob.name == name:
                return knob
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Task:
    """One workload on one target and machine.

    ``arguments`` is the workload's own argument list (AutoTVM task arguments, Ansor workload
    key arguments, MetaSchedule ``args_info``); ``hardware`` holds Ansor's hardware parameters
    or the target's own attributes; ``extents`` are loop extents read from the schedules;
    ``blob`` is what else a rebuild needs (MetaSchedule: the workload's JSON line). ``identity``
    says what a stand-in computes (``training.table.table.workload_key``).
    """

    task_id: str
    format: str
    workload: str
    arguments: Any
    target: str
    target_kind: str
    hardware: dict[str, Any] = field(default_factory=dict)
    machine: str | None = None
    extents: tuple[int, ...] = ()
    blob: str | None = None
    identity: str = ""

    @classmethod
    def stand_in(cls, task_id: str, entry: Mapping[str, Any]) -> Task:
        """Return a task with the fields that a model's manifest keeps (``entry``, by field)."""
        return cls(
            task_id=task_id,
            format=entry.get("format", ""),
            workload=entry.get("workload", ""),
            arguments=entry.get("arguments"),
            target=entry.get("target", ""),
            target_kind="",
            extents=tuple(entry.get("extents", ())),
            identity=entry.get("identity", ""),
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sketch and a value for each knob; candidates with the same id are equal."""

    candidate_id: str
    sketch_id: str
    decisions: tuple[int, ...]

    def __hash__(self) -> int:
        return hash(self.candidate_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self.candidate_id == other.candidate_id


@dataclass(frozen=True, slots=True)
class Direction:
    """A mutation direction: which rule, on which knob, and which way if the rule has one."""

    rule: KnobKind
    knob: str | None = None
    way: Literal["up", "down"] | None = None

    def __str__(self) -> str:
        return ":".join(part for part in (self.rule, self.knob, self.way) if part)


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement of a candidate: a value or an error, never a sentinel.

    ``elapsed_s`` is what the measurement cost (build and run) in seconds. ``latency_s`` follows
    from the repeats: their arithmetic mean (what TVM ranks by), ``None`` unless ok; it is computed
    once because a replay reads the same trials in thousands of runs.
    """

    candidate: Candidate
    state: TrialState
    run_times_s: tuple[float, ...] = ()
    elapsed_s: float = 0.0
    timestamp: float | None = None
    error: str | None = None
    latency_s: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        times = self.run_times_s
        known = self.state is TrialState.OK and times
        object.__setattr__(self, "latency_s", sum(times) / len(times) if known else None)


def canonical_json(value: Any) -> bytes:
    """Encode with sorted keys and no spaces, so that equal values have equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def content_id(*parts: bytes | str) -> str:
    """Hash parts into a 16-digit hexadecimal id (blake2b, 64 bits)."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


_WORD = 2**64 - 1


def candidate_id(task_id: str, sketch: Sketch, decisions: Sequence[int]) -> str:
    """Hash task, sketch and the free decisions; recorded and live candidates share this id.

    ``decisions`` is the whole flat vector; a tile's outermost factor is not hashed.
    ``toolkit.logs.rows.columns.candidate_numbers`` does the same for many rows.
    """
    state = int(content_id(task_id, sketch.sketch_id), 16)
    for knob in sketch.knobs:
        for part in decisions[knob.free]:
            state = ((state ^ (part & _WORD)) * 0x9E3779B97F4A7C15) & _WORD
            state = ((state ^ (state >> 32)) * 0xD6E8FEB86659FD93) & _WORD
            state ^= state >> 29
    return f"{state:016x}"


def iter_ways(knob: Knob) -> tuple[Literal["up", "down"], ...]:
    """Return the ways to mutate a knob: up and down for ordered knobs, none for others."""
    unordered = knob.kind in ("categorical", "compute_location", "thread_binding")
    return () if unordered else ("up", "down")
