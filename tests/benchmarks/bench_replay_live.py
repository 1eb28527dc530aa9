"""Does a replay forecast live runs? The same strategies, replayed and live, on this machine.

    python tests/benchmarks/bench_replay_live.py OUT [--model FOLDER ...] [--open]

Nothing else may run. One command does four steps; run again, it goes on where it stopped.

1. *record*: random programs of a few workloads and mutants of the fastest are measured as by
   ``toolkit collect`` and ingested. Each is measured on three occasions: a replay of a record
   with one reading a program has no noise, so that its intervals are too narrow for live runs.
2. *replay*: every strategy on every task of that record, many seeds; and in draws that the
   readings leave open, for intervals that know of noise and drift
   (``toolkit.replay.forecast.forecast``).
3. *live*: the same strategies by the same runner, with other seeds, over the same space of
   recorded candidates; but what they ask for is measured on the device, now. Programs are compiled
   once and kept, and each evaluation is a fresh reading of one; each round of all strategies and
   tasks has a measuring process of its own and a random order. With ``--open`` live runs search
   TVM's whole space instead, and every program is compiled when it is asked for.
4. *compare*: signs of all pairwise differences, and how often a live figure lies in the interval
   that the replays forecast for the mean of so many runs (``agreement.py``).

Scores are of latencies as a run saw them, on both sides; evaluations count, not seconds. Figures
of every pair and strategy stand in ``agreement.json`` (``agreement-open.json``); the tables are
printed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from agreement import Draws, Runs, Trials, compare, show
from checkpoint import Checkpoint
from rebuilt import KeptBuilds, RebuiltOracle

from toolkit.datasets import ingest, open_dataset
from toolkit.live.measure.engines import open_engine
from toolkit.live.measure.machine import default_target, describe_machine, noise_warnings
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.programs import load_workload
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.collect import Plan, collect
from toolkit.live.workloads.named import parse_workload
from toolkit.records import Trial, content_id
from toolkit.replay import RecordedSpace, load_tables, parse_scenario
from toolkit.replay.execute.task_run import replay_once, strategy_of
from toolkit.replay.forecast.forecast import forecast
from toolkit.replay.record.models import guides_of
from toolkit.replay.record.readings import Readings, readings_of
from toolkit.replay.scenario import Scenario, StrategyChoice
from toolkit.replay.statistics.metrics import Replayed
from toolkit.search import STRATEGIES
from toolkit.search.runner import Budget, run
from toolkit.training.trained.models import TrainedModels, load_trained

# None of them is among the bundled logs, on which models for this machine are trained.
WORKLOADS = (
    "conv1d_nlc:1,128,64,128,3,1,1",
    "conv2d_nhwc:1,28,28,64,64,3,1,1",
    "depthwise_conv2d_nhwc:1,28,28,128,3,1,1",
    "batch_matmul_nkkm:8,64,64,64",
)
BATCH = 8
# Ansor's rounds of 64 would spend the budget in one. Coordinate descent alone would strand at its
# start, in a record that holds few of its neighbours.
ROUNDS = {"round_size": BATCH, "population": 256}
STRATEGY_OPTIONS: dict[str, dict[str, Any]] = {
    "random": {},
    "bayes-ei": {},
    "evolutionary": ROUNDS,
    "etc-sketch": ROUNDS,
    "mutation-guided": ROUNDS,
    "explore-then-droplet": {"explore": 24, "options": ROUNDS},
    "model-ranked": {},
    "transfer": {},
}
# Live runs never share a seed with a replay: a user wants to know of runs that are yet to be made.
FIRST_LIVE_SEED = 10_000


@dataclass
class Bench:
    """The settings, and what the steps hand on."""

    out: Path
    target: str
    protocol: Protocol
    scenario: Scenario
    models: TrainedModels
    dataset: Any
    spaces: dict[str, RecordedSpace]

    @property
    def budget(self) -> int:
        """Evaluations of a run."""
        assert self.scenario.budget.evaluations is not None
        return self.scenario.budget.evaluations

    def key(self, *choices: StrategyChoice) -> str:
        """Hash of all that runs of some strategies depend on, beside their seeds."""
        alike = self.scenario.model_copy(update={"seeds": 1, "strategies": choices})
        recorded = self.dataset.fingerprint()
        protocol = repr(self.protocol.to_dict())
        return content_id(alike.fingerprint(), self.models.fingerprint, recorded, protocol)


def scenario_of(names: list[str], models: TrainedModels, evaluations: int, seeds: int) -> Scenario:
    """Build the scenario; strategies without their model are left out, and said."""
    choices = []
    for name in names:
        plugin = STRATEGIES.get(name)
        if (plugin.needs_scorer and models.throughput is None) or (
            plugin.needs_direction_scorer and models.mutation is None
        ):
            print(f"left out: {name} needs a model (--model)", flush=True)
            continue
        choices.append({"name": name, "options": STRATEGY_OPTIONS.get(name, {})})
    content = {"name": "replay-live", "batch_size": BATCH, "stop_at_best": False, "seeds": seeds}
    return parse_scenario({**content, "budget": {"evaluations": evaluations}, "strategy": choices})


def record(out: Path, workloads: list[str], plan: Plan, target: str, protocol: Protocol) -> Any:
    """Measure the record (or what is missing of it) and open it as a dataset."""
    chosen = [workload for text in workloads for workload in parse_workload(text)]
    collect(chosen, out / "logs", target=target, protocol=protocol, plan=plan)
    ingest([out / "logs"], out / "dataset")
    return open_dataset(out / "dataset")


def replay(bench: Bench) -> Runs:
    """Replay every strategy on every task; kept in ``replay.json``."""
    path = bench.out / "replay.json"
    key = [bench.key(*bench.scenario.strategies), bench.scenario.seeds]
    if path.is_file():
        kept = json.loads(path.read_bytes())
        if kept["key"] == key:
            arrays: Runs = {
                task: {label: [np.array(run) for run in runs] for label, runs in by.items()}
                for task, by in kept["runs"].items()
            }
            return arrays
    found: Runs = {}
    for task_id, space in bench.spaces.items():
        guides = _guides(bench, space)
        found[task_id] = {
            choice.label: [
                _rows(replay_once(space, choice, bench.scenario, seed, **guides).replayed)
                for seed in range(bench.scenario.seeds)
            ]
            for choice in bench.scenario.strategies
        }
    # Python's own writer: it has a word for NaN, which stands for a failure.
    plain = {t: {k: [r.tolist() for r in v] for k, v in by.items()} for t, by in found.items()}
    path.write_text(json.dumps({"key": key, "runs": plain}), encoding="utf-8")
    return found


def forecasts(
    bench: Bench, draws: int, runs: int, trials: Trials
) -> tuple[Draws, dict[str, Readings]]:
    """Run every strategy in draws that the record allows; kept in ``forecast.json``.

    Of the live ``trials`` nothing is taken but what they cost: kept builds make them quicker than
    the record's, and a shorter run meets less change.
    """
    readings = readings_of({task_id: space.table for task_id, space in bench.spaces.items()})
    pace = {
        task_id: float(
            np.mean([t.elapsed_s for t in trials[task_id]]) / space.table.elapsed_s.mean()
        )
        for task_id, space in bench.spaces.items()
    }
    path = bench.out / "forecast.json"
    noise = content_id(
        *(repr((v.tolist(), pace[t])) for t, r in readings.items() for v in (r.latency, r.seen))
    )
    key = [bench.key(*bench.scenario.strategies), draws, runs, noise]
    kept = json.loads(path.read_bytes()) if path.is_file() else {"key": None}
    if kept["key"] != key:
        plain: dict[str, Any] = {}
        for task_id, space in bench.spaces.items():
            guides = _guides(bench, space)
            plain[task_id] = {}
            for choice in bench.scenario.strategies:
                drawn = forecast(
                    space,
                    readings[task_id],
                    choice,
                    bench.scenario,
                    draws=draws,
                    runs=runs,
                    pace=pace[task_id],
                    **guides,
                )
                plain[task_id][choice.label] = [[run.tolist() for run in w] for w in drawn]
        kept = {"key": key, "runs": plain}
        path.write_text(json.dumps(kept), encoding="utf-8")
    found: Draws = {
        task: {label: [[np.array(run) for run in w] for w in mine] for label, mine in by.items()}
        for task, by in kept["runs"].items()
    }
    return found, readings


def _rows(replayed: Replayed) -> Any:
    return np.array([replayed.latency_s, replayed.value_s])


def _guides(bench: Bench, space: Any) -> dict[str, Any]:
    """Models for a space: members that never saw its task."""
    if isinstance(space, RecordedSpace):
        return {**guides_of(bench.models, space)}
    task, models = space.task, bench.models
    return {"scorer": models.scorer(task), "direction_scorer": models.direction_scorer(task)}


def live(bench: Bench, seeds: int, *, whole_space: bool) -> tuple[Runs, Trials]:
    """Run every strategy on every task on the device; give the runs, and all trials by task."""
    folder = bench.out / ("live-open" if whole_space else "live")
    modules = {t: load_workload(str(space.task.blob)) for t, space in bench.spaces.items()}

    def fresh(task_id: str, seed: int) -> MetaScheduleSpace:
        design = DesignSpace(modules[task_id], bench.target, seed=seed + 1)
        return MetaScheduleSpace(design, machine=bench.spaces[task_id].task.machine)

    # A space, its oracle and its models, for a run.
    known: dict[str, tuple[Any, Any, dict[str, Any]]] = {}
    engine: Any
    if whole_space:
        engine = open_engine(bench.target, bench.protocol, builders=1)
    else:
        engine = KeptBuilds(bench.target, bench.protocol, bench.out / "built")
        for task_id, space in bench.spaces.items():
            rows = bench.dataset.candidates([task_id])
            schedules = dict(zip(rows["candidate_id"], rows["schedule"], strict=True))
            oracle = RebuiltOracle(space, schedules, fresh(task_id, 0), engine)
            known[task_id] = space, oracle, _guides(bench, space)
    found: Runs = {t: {c.label: [] for c in bench.scenario.strategies} for t in bench.spaces}
    trials: Trials = {task_id: [] for task_id in bench.spaces}
    with engine:
        for seed in range(FIRST_LIVE_SEED, FIRST_LIVE_SEED + seeds):
            if not whole_space:
                engine.renew()
            order = [(t, choice) for t in bench.spaces for choice in bench.scenario.strategies]
            for number in np.random.default_rng(seed).permutation(len(order)).tolist():
                task_id, choice = order[number]
                if whole_space:
                    # Anew for each run: what a space was asked before is in what it gives.
                    opened = fresh(task_id, seed)
                    known[task_id] = opened, DeviceOracle(opened, engine), _guides(bench, opened)
                searched, asked, guides = known[task_id]
                header = {"key": bench.key(choice), "seed": seed}
                done = run(
                    strategy_of(searched, choice, seed, **guides),
                    Checkpoint(asked, folder / task_id / f"{choice.label}-{seed}.jsonl", header),
                    Budget(evaluations=bench.budget),
                    batch_size=BATCH,
                )
                found[task_id][choice.label].append(_both(bench.spaces[task_id], done.trials))
                trials[task_id] += done.trials
            print(f"live: {seed + 1 - FIRST_LIVE_SEED} of {seeds} rounds", flush=True)
    return found, trials


def _both(space: RecordedSpace, trials: Sequence[Trial]) -> Any:
    """Latencies as they were seen now, and as they stand in the record; NaN for a failure."""
    seen = [math.nan if trial.latency_s is None else trial.latency_s for trial in trials]
    numbers = space.index_of([trial.candidate for trial in trials])
    recorded = np.where(numbers < 0, math.nan, space.table.value_s[numbers])
    return np.array([seen, np.where(np.isnan(seen), math.nan, recorded)])


def main() -> None:
    """Do all steps; write one JSON file and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--workload", action="append", metavar="NAME:ARGUMENTS")
    parser.add_argument("--strategy", action="append", metavar="NAME")
    parser.add_argument("--random", type=int, default=120, help="random programs of each task")
    parser.add_argument("--refined", type=int, nargs="*", default=[12, 6], help="then parents")
    parser.add_argument("--occasions", type=int, default=3, help="readings of each in the record")
    parser.add_argument("--evaluations", type=int, default=64, help="of each run")
    parser.add_argument("--replays", type=int, default=100, help="seeds")
    parser.add_argument("--draws", type=int, default=60, help="that the record allows")
    parser.add_argument("--live", type=int, default=5, help="seeds, at least 2")
    parser.add_argument("--min-repeat-ms", type=int, default=10)
    parser.add_argument("--open", action="store_true", help="live runs in TVM's whole space")
    options = parser.parse_args()
    if options.occasions < 2:
        parser.error("--occasions must be at least 2: one reading says nothing of noise")
    began = time.monotonic()
    target, protocol = default_target(1), Protocol(min_repeat_ms=options.min_repeat_ms)
    warnings = noise_warnings(1)
    print("\n".join(warnings), flush=True)
    models = load_trained(options.model)
    names = options.strategy or list(STRATEGY_OPTIONS)
    scenario = scenario_of(names, models, options.evaluations, options.replays)
    refined = tuple(options.refined)
    plan = Plan(trials=options.random, refined=refined, occasions=options.occasions)
    workloads = options.workload or list(WORKLOADS)
    dataset = record(options.out, workloads, plan, target, protocol)
    spaces = {task_id: RecordedSpace(table) for task_id, table in load_tables(dataset).items()}
    bench = Bench(options.out, target, protocol, scenario, models, dataset, spaces)
    print(f"recorded after {time.monotonic() - began:.0f} s", flush=True)
    replayed = replay(bench)
    print(f"replayed after {time.monotonic() - began:.0f} s", flush=True)
    measured, trials = live(bench, options.live, whole_space=options.open)
    print(f"live runs done after {time.monotonic() - began:.0f} s", flush=True)
    draws, readings = forecasts(bench, options.draws, options.live, trials)
    print(f"forecast after {time.monotonic() - began:.0f} s", flush=True)
    result = compare(spaces, replayed, measured, trials, bench.budget, draws, readings)
    result |= {"machine": describe_machine(), "warnings": warnings, "plan": asdict(plan)}
    result |= {"protocol": protocol.to_dict(), "evaluations": bench.budget}
    name = "agreement-open.json" if options.open else "agreement.json"
    (options.out / name).write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    show(result)


if __name__ == "__main__":
    main()
