"""Re-measures what the arms of a race ended with: fresh builds, fresh processes, in blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit.atomic import sweep, write_atomically
from toolkit.errors import LiveError
from toolkit.live.confirm.blocks import Confirmation, confirm
from toolkit.live.confirm.rules import INCUMBENT, Rules
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import no_verdict, slowed_by
from toolkit.live.race.curves import final_latency_s, reached
from toolkit.live.race.leg import STOCK
from toolkit.live.race.steps import MOST, Held, as_good_from, steps_of
from toolkit.live.space.programs import count_inputs, replay_trace, timed_program
from toolkit.live.tune.tasks import TuneTask
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
    same for each program with its ``trial``, and the ``trials`` and ``clock_s`` after which the arm
    held it; ``as_good``, the same of the first program from which on the arm's are as good as
    stock's final one (``None``: never); ``slowed_by``, how much longer these programs took now than
    when the searches read them; ``undecided``, why that is too much to decide anything (``None``:
    it is not). An undecided confirmation has readings and no ratios; asked for again, it is made
    anew.
    """
    sweep(folder)
    path = folder / CONFIRMED_FILE
    arms = sorted(arm for arm in legs if arm != STOCK)
    wanted = {"arms": arms, "blocks": blocks, "held": MOST}
    if path.is_file():
        kept: dict[str, Any] = orjson.loads(path.read_bytes())
        if kept["of"] == wanted and kept.get("undecided") is None:
            return kept
    answer: dict[str, Any] = {"of": wanted, "task": task.name, "seed": seed}
    answer.update(readings_s={}, finals={}, firsts={}, steps={}, as_good={}, dropped={})
    answer["undecided"] = None
    stock = final_latency_s(legs[STOCK])
    stock_at = None if stock is None else reached(legs[STOCK], stock)
    steps, firsts = _steps(legs, stock, (STOCK, *arms))
    if stock_at is None or not any(steps.get(arm) for arm in arms):
        _keep(path, answer)
        return answer
    programs = {
        name: _program(task, legs[arm], held.trial)
        for arm, mine in steps.items()
        for held in mine
        if (name := _name(legs, arm, held.trial)) is not None
    }
    result = confirm(
        _program(task, legs[STOCK], stock_at[0]),
        programs,
        target=target,
        protocol=protocol,
        # Each interval is an estimate of its own, looked at once: nothing is picked here.
        rules=Rules(error_rate=0.025 * len(programs), looks=(blocks,)),
        seconds=math.inf,
        rng=np.random.default_rng(seed),
        step=_Quiet(step),
    )
    answer.update(
        readings_s=result.readings,
        dropped=result.dropped,
        stock_latency_s=float(np.exp(np.mean(np.log(result.readings[INCUMBENT])))),
        slowed_by=slowed_by(_read_s(legs, steps, stock), result.readings),
    )
    answer["undecided"] = no_verdict(answer["slowed_by"])
    if answer["undecided"] is None:
        answer.update(_ratios(legs, steps, firsts, result))
    _keep(path, answer)
    return answer


def _ratios(
    legs: Mapping[str, dict[str, Any]],
    steps: Mapping[str, Sequence[Held]],
    firsts: Mapping[str, int | None],
    result: Confirmation,
) -> dict[str, Any]:
    """``finals``, ``firsts``, ``steps`` and ``as_good`` of every arm."""
    answer: dict[str, Any] = {"finals": {}, "firsts": {}, "steps": {}, "as_good": {}}
    ratios: dict[str | None, dict[str, Any]] = {None: {"ratio": 1.0, "interval": [1.0, 1.0]}}
    ratios |= {
        j.challenger: {"ratio": j.ratio, "interval": list(j.interval), "verdict": j.verdict}
        for j in result.judgements
    }
    for arm, mine in steps.items():
        names = {held: _name(legs, arm, held.trial) for held in mine}
        # A program that ran in the search and does not run now has no say.
        told = [held for held in mine if names[held] in ratios]
        answer["steps"][arm] = [{**asdict(held), **ratios[names[held]]} for held in told]
        good = as_good_from([names[held] for held in told], result.readings) if told else None
        answer["as_good"][arm] = good and {**asdict(told[good[0]]), "ratio": good[1]}
        if arm != STOCK:
            final = names[mine[-1]] if mine else None
            first = firsts[arm]
            read_low = None if first is None else _name(legs, arm, first)
            for key, name in (("finals", final), ("firsts", read_low)):
                if name is not None and name in ratios:
                    answer[key][arm] = ratios[name]
    return answer


def _steps(
    legs: Mapping[str, dict[str, Any]], stock_s: float | None, arms: Sequence[str]
) -> tuple[dict[str, list[Held]], dict[str, int | None]]:
    """Programs to be read again, by arm; and the trial that first read stock's best, if any did."""
    steps: dict[str, list[Held]] = {}
    firsts: dict[str, int | None] = {}
    if stock_s is not None:
        for arm in arms:
            first = reached(legs[arm], stock_s)
            firsts[arm] = first and first[0]
            steps[arm] = steps_of(legs[arm], stock_s, [first[0]] if first else [])
    return steps, firsts


def _name(legs: Mapping[str, dict[str, Any]], arm: str, trial: int) -> str | None:
    """What a trial's program is called among the challengers; ``None`` for the incumbent itself."""
    latency_s = legs[arm]["trials"][trial - 1]["latency_s"]
    if arm == STOCK and latency_s == final_latency_s(legs[STOCK]):
        return None
    return f"{arm}, trial {trial}"


def _read_s(
    legs: Mapping[str, dict[str, Any]], steps: Mapping[str, Sequence[Held]], stock_s: float | None
) -> dict[str, float]:
    """Seconds that the searches read of the programs that were read again, by their names there."""
    read = {} if stock_s is None else {INCUMBENT: stock_s}
    for arm, mine in steps.items():
        for held in mine:
            name = _name(legs, arm, held.trial)
            if name is not None:
                read[name] = legs[arm]["trials"][held.trial - 1]["latency_s"]
    return read


class _Quiet:
    """Passes notes on; the blocks' seconds are no units of the race's bar."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
        self._step.advance(0.0, note=note)


def _keep(path: Path, answer: dict[str, Any]) -> None:
    write_atomically(path, orjson.dumps(answer, option=orjson.OPT_INDENT_2))


def _program(task: TuneTask, leg: Mapping[str, Any], trial: int) -> Program:
    """The program that a trial of a leg measured."""
    folder = Path(leg["folder"])
    row = leg["trials"][trial - 1]
    lines = (folder / "database_tuning_record.json").read_bytes().splitlines()
    if "record" in row:
        record = orjson.loads(lines[row["record"]])[1]
    else:
        # Stock's database has another order: it is the record that read the same.
        records = [orjson.loads(line)[1] for line in lines]
        timed = [(abs(sum(r[1]) / len(r[1]) - row["latency_s"]), r) for r in records if r[1]]
        _, record = min(timed, key=lambda pair: pair[0])
    schedule = replay_trace(task.module, record[0])
    if schedule is None:
        raise LiveError("TVM refuses the schedule of a final program", where=folder)
    return timed_program(schedule, count_inputs(task.module))
