"""Directions on the device: strategies beside a reference, the same engine and trials.

    python tests/benchmarks/bench_directions.py OUT --model FOLDER ... [--strategy potential ...]

A strategy may have options behind its name, as in ``potential:levels=1.0``.
Nothing else may run. The layers are the first six of ``race_lot.py``, drawn by lot from five
networks before any race. Every leg is one of ``toolkit race``: a process of its own, strategies in
alternating order; what is finished is kept. Then the programs with which each strategy got better
are built anew and read in turns beside the last one of the reference, ``evolutionary`` if nothing
else is said, which stands where a race has TVM's own tuner. S is trials until a strategy has a
program as good as that last one, over the trials after which the reference itself had one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import orjson
from race_lot import lot

from toolkit.live.measure.engines import engine_options
from toolkit.live.measure.machine import default_target, describe_machine, physical_cores
from toolkit.live.measure.protocol import Protocol
from toolkit.live.race.confirm import confirm_finals, metaschedule_programs
from toolkit.live.race.curves import leg_curve
from toolkit.live.race.leg import STOCK
from toolkit.live.race.race import run_leg_process
from toolkit.live.race.report import report_race
from toolkit.live.race.rules import leg_order, refuse_leak, refuse_missing
from toolkit.live.space.database import workload_line
from toolkit.networks.tasks import tasks_of
from toolkit.progress import SILENT
from toolkit.training.trained.models import load_trained
from toolkit.workspace import folder_name


def strategy_of(arm: str) -> tuple[str, dict[str, Any]]:
    """The strategy that an arm names, and its options."""
    name, _, told = arm.partition(":")
    pairs = (pair.partition("=") for pair in told.split(",") if pair)
    return name, {key: orjson.loads(value) for key, _, value in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, action="append", required=True)
    parser.add_argument("--strategy", action="append")
    parser.add_argument("--reference", default="evolutionary")
    parser.add_argument("--workload", action="append")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=9)
    options = parser.parse_args()
    strategies = options.strategy or ["potential", "transfer-evolved"]
    reference_arm: str = options.reference
    arms = [reference_arm, *strategies]
    threads = physical_cores()
    target = default_target(threads)
    # As in ``toolkit race``, but that disturbed readings are repeated: no arm is another tuner.
    protocol = Protocol(number=3, repeat=1, min_repeat_ms=100, threads=threads, drop_above=1.3)
    guides = load_trained(options.model)
    refuse_missing(guides, [strategy_of(arm)[0] for arm in arms])
    tasks = tasks_of(options.workload or lot()[:6], target)
    for task in tasks:
        refuse_leak(guides, task.module, target, None)
    legs: list[dict[str, Any]] = []
    confirmed: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for number, task in enumerate(tasks):
            folder = options.out / folder_name(task.name) / f"seed-{seed}"
            for arm in leg_order(arms, number, seed):
                strategy, chosen = strategy_of(arm)
                spec = {
                    "target": target,
                    "protocol": protocol.to_dict(),
                    "trials": options.trials,
                    "engine": engine_options(None, None),
                    "folder": str((folder / folder_name(arm)).resolve()),
                    "workload": workload_line(task.module),
                    "name": task.name,
                    "models": [str(model.resolve()) for model in options.model],
                    "machine": None,
                    "affinity": [],
                    "arm": arm,
                    "strategy": strategy,
                    "options": chosen,
                    "seed": seed,
                }
                run_leg_process(spec)
                print(f"{task.name}, seed {seed}: {arm}", flush=True)
            mine = {arm: leg_curve(folder / folder_name(arm), task.name, seed, arm) for arm in arms}
            reference = mine.pop(reference_arm) | {"arm": STOCK}
            for place, row in enumerate(reference["trials"]):
                row["batch"] = place
            mine[STOCK] = reference
            with SILENT.step(task.name) as step:
                found = confirm_finals(
                    task.name,
                    seed,
                    mine,
                    folder,
                    program_of=metaschedule_programs(task),
                    target=target,
                    protocol=protocol,
                    blocks=options.blocks,
                    step=step,
                )
            confirmed.append(found)
            legs += mine.values()
            report = report_race(legs, confirmed, strategies)
            kept = {"machine": describe_machine(), "reference": reference_arm, **report}
            (options.out / "directions.json").write_bytes(
                orjson.dumps(kept, option=orjson.OPT_INDENT_2)
            )
    print("| task | seed | strategy | S in trials | last latency, the reference's 1 |")
    print("|---|---|---|---|---|")
    again = {(one["task"], one["seed"]): one for one in confirmed}
    for row in report["rows"]:
        final = again[row["task"], row["seed"]]["finals"].get(row["arm"])
        trials, least = row.get("quality_trials"), row.get("quality_at_least_trials")
        said = f"{trials:.2f}" if trials is not None else f"> {least or float('nan'):.2f}"
        ratio = "–" if final is None else f"{final['ratio']:.3f}"
        print(f"| {row['task']} | {row['seed']} | {row['arm']} | {said} | {ratio} |")
    for arm, summary in report["summary"].items():
        print(arm)
        for name in ("quality_trials", "quality_seconds", "final_ratio"):
            print(f"  {name}: {summary[name]}")
        missed = f"{summary['quality_not_reached']} of {summary['legs']} legs"
        print(f"  not reached: {missed}, undecided: {summary['undecided']}")


if __name__ == "__main__":
    main()
