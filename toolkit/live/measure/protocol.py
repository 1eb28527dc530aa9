"""The measurement protocol. Measurements of different protocols are never compared (rule 7)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

RUN_TIMEOUT_S, OF_READINGS = 10.0, 4.0
"""A run may take this many seconds, or this factor times its requested reading time if longer."""


def run_limit_s(repeat: int, min_repeat_ms: int) -> float:
    """Return the seconds that a run may take; long readings on request are no failure."""
    return max(RUN_TIMEOUT_S, OF_READINGS * 1e-3 * repeat * min_repeat_ms)


@dataclass(frozen=True, slots=True)
class Protocol:
    """Settings of TVM's time evaluator and of the worker around it, and time limits.

    Attributes
    ----------
    number, repeat, min_repeat_ms, cache_flush
        As in ``time_evaluator``: calls that one repeat averages (more, if the repeat is shorter
        than ``min_repeat_ms`` milliseconds), number of repeats, and whether the CPU cache is
        flushed before each repeat.
    threads, cores
        Threads of the measured program, and processors that the worker is pinned to (empty: the
        system decides). Several threads are bound to one processor each: to ``cores``, else to
        the first cores of the machine.
    placement
        Seed for the start address of each argument (on a CPU); ``None``: each process draws its
        own.
    build_timeout_s, run_timeout_s
        After this time the worker is killed and the trial fails.
    first_reading_ms, drop_above
        If ``drop_above`` is set, a program is first read once, for at least ``first_reading_ms``.
        If that is above ``drop_above`` times the best latency so far, there is no full reading.
        0: every program gets the full protocol.
    max_foreign_share
        A reading is repeated (up to ``max_retries`` times) if other processes used more than this
        share of the worker's cores meanwhile. This needs programs that run on these cores.
    """

    number: int = 1
    repeat: int = 3
    min_repeat_ms: int = 20
    cache_flush: bool = False
    threads: int = 1
    cores: tuple[int, ...] = ()
    placement: int | None = None
    build_timeout_s: float = 20.0
    run_timeout_s: float = RUN_TIMEOUT_S
    first_reading_ms: int = 5
    drop_above: float = 0.0
    max_foreign_share: float = 0.2
    max_retries: int = 3

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form, stored with every log; no ``placement`` if it is ``None``."""
        found = asdict(self)
        if self.placement is None:
            del found["placement"]
        return found
