"""Re-measures what the arms of a race ended with: fresh builds, fresh processes, in blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from toolkit.live.race_steps import MOST, as_good_from, steps_of
from toolkit.live.tasks import TuneTask
from toolkit.progress import Step

CONFIRMED_FILE = "confirmed.json"


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
    """Read again, beside stock's final program, the programs with which each arm got better.

    The incumbent is stock's final program. Challengers are the steps of every arm, stock's own
    among them (``race_steps``): they say when an arm had a program that is as good, what its final
    one is worth, and, of the one with which it first read a latency as low as stock's best, whether
    that was a lucky reading. What was measured is kept in ``confirmed.json`` in ``folder``.

    Returns
    -------
    ``task``, ``seed``, ``readings_s`` by program; by arm ``finals`` and ``firsts``, the ratio of
    latencies to stock's final program (below 1 is faster) and its 95 % interval; ``steps``, the
    same for each program with its ``trial`` and ``clock_s``; ``as_good``, the trial and clock from
    which on the arm's programs are as good as stock's final one (``None``: never), and the
    ``ratio`` of the first of them.
    """
    path = folder / CONFIRMED_FILE
    arms = sorted(arm for arm in legs if arm != STOCK)
    wanted = {"arms": arms, "blocks": blocks, "steps": MOST}
    if path.is_file():
        kept: dict[str, Any] = orjson.loads(path.read_bytes())
        if kept["of"] == wanted:
            return kept
    answer: dict[str, Any] = {"of": wanted, "task": task.name, "seed": seed}
    answer.update(readings_s={}, finals={}, firsts={}, steps={}, as_good={}, dropped={})
    stock = final_latency_s(legs[STOCK])
    steps, firsts = _steps(legs, stock, (STOCK, *arms))
    programs = {
        _name(arm, number): _program(
            task,
            Path(legs[arm]["folder"]),
            legs[arm]["trials"][number - 1]["latency_s"],
            target,
        )
        for arm, numbers in steps.items()
        for number in numbers
        if not _is_final(legs, arm, number)
    }
    if stock is None or not any(steps.get(arm) for arm in arms):
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
    for arm, numbers in steps.items():
        # A program that ran in the search and does not run now has no say.
        told = [n for n in numbers if _name(arm, n) in ratios or _is_final(legs, arm, n)]
        clock = {number: legs[arm]["trials"][number - 1]["clock_s"] for number in told}
        same = {"ratio": 1.0, "interval": [1.0, 1.0]}
        answer["steps"][arm] = [
            {"trial": n, "clock_s": clock[n], **ratios.get(_name(arm, n), same)} for n in told
        ]
        names = [None if _is_final(legs, arm, n) else _name(arm, n) for n in told]
        good = as_good_from(names, result.readings) if told else None
        answer["as_good"][arm] = good and {
            "trial": told[good[0]],
            "clock_s": clock[told[good[0]]],
            "ratio": good[1],
        }
        if arm == STOCK:
            continue
        for key, number in (("finals", numbers[-1:]), ("firsts", firsts.get(arm, []))):
            if number and number[0] in told:
                answer[key][arm] = ratios[_name(arm, number[0])]
    answer.update(
        readings_s=result.readings,
        dropped=result.dropped,
        stock_latency_s=float(np.exp(np.mean(np.log(result.readings[INCUMBENT])))),
    )
    _keep(path, answer)
    return answer


def _steps(
    legs: Mapping[str, dict[str, Any]], stock_s: float | None, arms: Sequence[str]
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Trials to be read again, by arm; and the one that first read stock's best, where one did."""
    steps: dict[str, list[int]] = {}
    firsts: dict[str, list[int]] = {}
    if stock_s is not None:
        for arm in arms:
            first = reached(legs[arm], stock_s)
            firsts[arm] = [first[0]] if first else []
            steps[arm] = steps_of(legs[arm], stock_s, firsts[arm])
    return steps, firsts


def _name(arm: str, number: int) -> str:
    return f"{arm}, trial {number}"


def _is_final(legs: Mapping[str, dict[str, Any]], arm: str, number: int) -> bool:
    """Whether a trial is that of stock's final program."""
    best = final_latency_s(legs[STOCK])
    return arm == STOCK and legs[STOCK]["trials"][number - 1]["latency_s"] == best


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
