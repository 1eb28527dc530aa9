"""Measure the final programs of a race's arms again: fresh builds, fresh processes, in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit.atomic import sweep, write_atomically
from toolkit.errors import LiveError
from toolkit.live.confirm.rules import INCUMBENT, Rules, judge
from toolkit.live.confirm.verdict import Confirmation, confirm
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.slowed import no_verdict, slowed_by, slowed_warnings
from toolkit.live.measure.turns import OpenDevice
from toolkit.live.race.baselines import record_of
from toolkit.live.race.curves import MOST, Held, as_good_from, final_latency_s, steps_of
from toolkit.live.race.leg import STOCK
from toolkit.live.space.programs import count_inputs, replay_trace, timed_program
from toolkit.live.tune.tasks import TuneTask
from toolkit.progress import Step, Values

CONFIRMED_FILE = "confirmed.json"

ProgramOf = Callable[[Mapping[str, Any], int], Program]
"""Returns the program that a trial (from 1) of a leg measured."""


def confirm_finals(
    task: str,
    seed: int,
    legs: Mapping[str, dict[str, Any]],
    folder: Path,
    *,
    program_of: ProgramOf,
    target: str,
    protocol: Protocol,
    blocks: int,
    step: Step,
    open_device: OpenDevice | None = None,
) -> dict[str, Any]:
    """Measure again the programs with which each arm got better, against stock's final program.

    ``legs`` are the legs (``leg_curve``) of one task and one seed, by arm. ``open_device`` opens
    the measuring process, if it is not one with this process's TVM. The incumbent is stock's final
    program. The challengers are the steps of every arm, stock's own included (``steps_of``). They
    show when an arm had a program that is as good, how good its final program is, and whether the
    first reading at or below stock's best was just a lucky one. All measurements are kept in
    ``confirmed.json`` in ``folder``.

    Returns ``task``, ``seed`` and ``readings_s`` by program. By arm: ``finals`` and ``firsts``, the
    ratio of latencies to stock's final program (below 1 is faster) with its 95 % interval;
    ``steps``, the same for each program with its ``trial``, and the ``trials`` and ``clock_s``
    after which the arm held it; ``as_good``, the same for the first program from which on all
    programs of the arm are as good as stock's final one (``None``: never). ``slowed_by`` is the
    programs' latency now over their latency in the searches. ``undecided`` is the reason why that
    is too much for a decision (``None``: it is not). An undecided confirmation has readings but no
    ratios, and is repeated on the next call.
    """
    sweep(folder)
    path = folder / CONFIRMED_FILE
    arms = sorted(arm for arm in legs if arm != STOCK)
    wanted = {"arms": arms, "blocks": blocks, "held": MOST}
    stock_s = final_latency_s(legs[STOCK])
    steps = {} if stock_s is None else {a: steps_of(legs[a], stock_s) for a in (STOCK, *arms)}
    if not any(steps.get(arm) for arm in arms):
        steps = {}
    if path.is_file():
        kept: dict[str, Any] = orjson.loads(path.read_bytes())
        same = kept["of"] == wanted and _of_these_legs(kept, steps)
        if same and kept.get("undecided") is None:
            return kept
    answer: dict[str, Any] = {"of": wanted, "task": task, "seed": seed, "readings_s": {}}
    answer.update(finals={}, firsts={}, steps={}, as_good={}, dropped={}, undecided=None)
    if stock_s is not None and steps:
        tried = {held.name: (arm, held) for arm in steps for held in steps[arm] if held.name}
        final = steps[STOCK][-1]
        result = confirm(
            program_of(legs[STOCK], final.trial),
            {name: program_of(legs[arm], held.trial) for name, (arm, held) in tried.items()},
            target=target,
            protocol=protocol,
            rules=_one_look(len(tried), blocks),
            seconds=math.inf,
            rng=np.random.default_rng(seed),
            step=_Quiet(step),
            open_device=open_device,
        )
        # Programs that no longer run must not widen the intervals of the others.
        left = [name for name in tried if name not in result.dropped]
        result.judgements = judge(result.readings, _one_look(len(left), blocks), left)
        read_s = {INCUMBENT: final.read_s, **{n: held.read_s for n, (_, held) in tried.items()}}
        slower = slowed_by(read_s, result.readings)
        answer.update(
            readings_s=result.readings,
            dropped=result.dropped,
            stock_latency_s=float(np.exp(np.mean(np.log(result.readings[INCUMBENT])))),
            slowed_by=slower,
            undecided=no_verdict(slower),
        )
        if answer["undecided"] is None:
            _add_ratios(answer, steps, stock_s, result)
    write_atomically(path, orjson.dumps(answer, option=orjson.OPT_INDENT_2))
    return answer


def _one_look(programs: int, blocks: int) -> Rules:
    """Return rules with one look, and a 95 % interval for each program: nothing is selected."""
    return Rules(error_rate=0.025 * programs, looks=(blocks,))


def _of_these_legs(kept: Mapping[str, Any], steps: Mapping[str, Sequence[Held]]) -> bool:
    """Return whether a confirmation is of these legs; a leg may have been run again since."""
    dropped = kept.get("dropped", {})
    now = {a: [h.clock_s for h in mine if h.name not in dropped] for a, mine in steps.items()}
    told = kept.get("steps", {}).items()
    return now == {arm: [step["clock_s"] for step in mine] for arm, mine in told}


def confirmation_warnings(found: Mapping[str, Any], folder: Path) -> list[str]:
    """Return warnings about a confirmation in ``folder`` whose programs had become slower."""
    return slowed_warnings(
        f"{found['task']}, seed {found['seed']}",
        found.get("slowed_by"),
        "run the same command again when the machine is quiet"
        if found.get("undecided")
        else f"remove {folder / CONFIRMED_FILE} and race again when the machine is quiet",
    )


def _add_ratios(
    answer: dict[str, Any],
    steps: Mapping[str, Sequence[Held]],
    stock_s: float,
    result: Confirmation,
) -> None:
    """Add ``finals``, ``firsts``, ``steps`` and ``as_good`` of every arm."""
    ratios: dict[str | None, dict[str, Any]] = {None: {"ratio": 1.0, "interval": [1.0, 1.0]}}
    ratios |= {
        j.challenger: {"ratio": j.ratio, "interval": list(j.interval), "verdict": j.verdict}
        for j in result.judgements
    }
    for arm, mine in steps.items():
        # Programs that no longer run are left out.
        told = [held for held in mine if held.name in ratios]
        answer["steps"][arm] = [{**held.to_dict(), **ratios[held.name]} for held in told]
        good = as_good_from([held.name for held in told], result.readings)
        answer["as_good"][arm] = good and {**told[good[0]].to_dict(), "ratio": good[1]}
        if arm == STOCK:
            continue
        low = [held for held in mine if held.read_s <= stock_s]
        for key, of in (("finals", mine[-1:]), ("firsts", low[:1])):
            if of and of[0].name in ratios:
                answer[key][arm] = ratios[of[0].name]


class _Quiet:
    """Passes notes on, without progress: the blocks' seconds are not units of the race's bar."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        self._step.advance(0.0, note=note, values=values)


def metaschedule_programs(task: TuneTask) -> ProgramOf:
    """Return a function that rebuilds a task's programs from its legs' MetaSchedule databases."""

    def program_of(leg: Mapping[str, Any], trial: int) -> Program:
        folder = Path(leg["folder"])
        row = leg["trials"][trial - 1]
        if "record" in row:
            lines = (folder / "database_tuning_record.json").read_bytes().splitlines()
            record = orjson.loads(lines[row["record"]])[1]
        else:
            record = record_of(folder, row["latency_s"])
        schedule = replay_trace(task.module, record[0])
        if schedule is None:
            raise LiveError("TVM refuses the schedule of a program of this leg", where=folder)
        return timed_program(schedule, count_inputs(task.module))

    return program_of
