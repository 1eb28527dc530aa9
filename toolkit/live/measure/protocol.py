"""How a measurement is made; only measurements of one protocol may be compared (honesty rule 7)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

RUN_TIMEOUT_S, OF_READINGS = 10.0, 4.0
"""Of a run, and so many times what its repeats ask for where that is longer."""


def run_limit_s(repeat: int, min_repeat_ms: int) -> float:
    """Seconds that a run may take: readings that are long by request are no failure."""
    return max(RUN_TIMEOUT_S, OF_READINGS * 1e-3 * repeat * min_repeat_ms)


@dataclass(frozen=True, slots=True)
class Protocol:
    """Settings of TVM's time evaluator, of the worker around it, and its limits.

    Attributes
    ----------
    number, repeat, min_repeat_ms, cache_flush
        As in ``time_evaluator``: calls averaged in one repeat (raised until a repeat lasts
        ``min_repeat_ms`` milliseconds), how many repeats are kept, and whether the CPU cache is
        flushed before each.
    threads, cores
        Threads of the measured program, and processors that the worker is pinned to; empty:
        wherever the system puts it. Several threads are bound one to a processor: to these, else
        to the first cores that there are.
    placement
        Seed of where in memory each argument begins (on a CPU); ``None``: each process draws it.
    build_timeout_s, run_timeout_s
        After these many seconds the worker is killed and the trial has failed.
    first_reading_ms, drop_above
        With ``drop_above`` a program is first read once, for at least ``first_reading_ms``; when
        that is more than ``drop_above`` times the best latency so far, it is not read in full.
        0: every program gets the full protocol.
    max_foreign_share
        A reading is taken again (up to ``max_retries`` times) when other processes used more
        than this share of the worker's cores meanwhile (where the programs run on these cores).
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
        """JSON-ready form, stored beside every log; ``placement`` only where there is one."""
        found = asdict(self)
        if self.placement is None:
            del found["placement"]
        return found
