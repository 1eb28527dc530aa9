"""Re-measures what the arms of a race ended with: fresh builds, fresh processes, in blocks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit.errors import LiveError
from toolkit.live.blocks import confirm
from toolkit.live.confirm import INCUMBENT, Rules
from toolkit.live.device import Program
from toolkit.live.leg import STOCK
from toolkit.live.programs import count_inputs, replay_trace, timed_program
from toolkit.live.protocol import Protocol
from toolkit.live.race_curves import final_latency_s, reached
from toolkit.live.tasks import TuneTask
from toolkit.progress import Step

CONFIRMED_FILE = "confirmed.json"
FIRST = " when it first read stock's best"


def confirm_finals(
    task: TuneTask,
    seed: int,
    legs: dict[str, dict[str, Any]],
    folder: Path,
    target: str,
    protocol: Protocol,
    blocks: int,
    step: Step,
) -> dict[str, Any]:
    """Compare each arm's final program with stock's, and the one that first read as fast as it.

    The incumbent is stock's final program. Each arm may send two challengers: its final program,
    and the program with which it first read a latency as low as stock's best: were that a lucky
    reading, its ratio here says so. What was measured is kept in ``confirmed.json`` in ``folder``.

    Returns
    -------
    ``task``, ``seed``, ``readings_s`` by program, ``finals`` and ``firsts``: by arm the ratio of
    latencies to stock's final program (below 1 is faster) and its 95 % interval.
    """
    path = folder / CONFIRMED_FILE
    arms = sorted(arm for arm in legs if arm != STOCK)
    wanted = {"arms": arms, "blocks": blocks}
    if path.is_file():
        kept: dict[str, Any] = orjson.loads(path.read_bytes())
        if kept["of"] == wanted:
            return kept
    stock = final_latency_s(legs[STOCK])
    answer: dict[str, Any] = {"of": wanted, "task": task.name, "seed": seed}
    programs: dict[str, Program] = {}
    for arm in arms:
        best = final_latency_s(legs[arm])
        if best is None:
            continue
        programs[arm] = _program(task, Path(legs[arm]["folder"]), best, target)
        first = None if stock is None else reached(legs[arm], stock)
        if first is not None:
            latency = legs[arm]["trials"][first[0] - 1]["latency_s"]
            program = _program(task, Path(legs[arm]["folder"]), latency, target)
            if program.key != programs[arm].key:
                programs[arm + FIRST] = program
    if stock is None or not programs:
        answer.update(readings_s={}, finals={}, firsts={}, dropped={})
        _keep(path, answer)
        return answer
    result = confirm(
        _program(task, Path(legs[STOCK]["folder"]), stock, target),
        programs,
        target=target,
        protocol=protocol,
        # Each interval is an estimate of its own, looked at once: nothing is picked here.
        rules=Rules(error_rate=0.025 * len(programs), looks=(blocks,)),
        seconds=math.inf,
        rng=np.random.default_rng(seed),
        step=_Quiet(step),
    )
    ratios = {
        j.challenger: {"ratio": j.ratio, "interval": list(j.interval), "verdict": j.verdict}
        for j in result.judgements
    }
    answer.update(
        readings_s=result.readings,
        dropped=result.dropped,
        stock_latency_s=float(np.exp(np.mean(np.log(result.readings[INCUMBENT])))),
        finals={arm: ratios[arm] for arm in arms if arm in ratios},
        firsts={arm: ratios.get(arm + FIRST, ratios[arm]) for arm in arms if arm in ratios},
    )
    _keep(path, answer)
    return answer


class _Quiet:
    """Passes notes on; the blocks' seconds are no units of the race's bar."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
        self._step.advance(0.0, note=note)


def _keep(path: Path, answer: dict[str, Any]) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_bytes(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
    temporary.replace(path)


def _program(task: TuneTask, folder: Path, latency_s: float, target: str) -> Program:
    """The recorded program of a leg whose reading is nearest to a latency."""
    lines = (folder / "database_tuning_record.json").read_bytes().splitlines()
    records = [orjson.loads(line)[1] for line in lines]
    timed = [(abs(sum(r[1]) / len(r[1]) - latency_s), r) for r in records if r[1]]
    if timed:
        _, record = min(timed, key=lambda pair: pair[0])
        schedule = replay_trace(task.module, record[0])
        if schedule is not None:
            return timed_program(schedule, count_inputs(task.module))
    raise LiveError("TVM refuses the schedule of a final program", where=folder)
