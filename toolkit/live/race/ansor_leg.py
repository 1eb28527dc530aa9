"""One leg of a race inside Ansor: an older TVM in its own process.

    python ansor_leg.py SPEC.json

A script for Python 3.7 or later with a TVM that has ``auto_scheduler`` (0.8 to 0.19), and xgboost.
It does not import the toolkit, and is run by its path. The arm ``stock`` runs the rounds of
Ansor's ``SketchPolicy`` unchanged. The other arms run the rounds in Python, with the policy's own
parts (its samples of the sketches, cost model, builder and runner), and with one or both changes
of Han, Wang, Li and Gao 2025:

* ``evolutionary``: neither change; rules are drawn with Ansor's weights. It shows the loop's gain.
* ``etc-sketch``: improved explore-then-commit over sketches, with Ansor's own evolution.
* ``mutation-guided``: a classifier predicts the rule that mutates each program.
* ``etc-mutation``: both.

``learn`` is not an arm: it measures all rules' mutants of random programs, to train the classifier.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
STEPS = runpy.run_path(str(HERE / "ansor_steps.py"))
RULES, WEIGHTS = STEPS["RULES"], STEPS["WEIGHTS"]
DIRECTIONS = runpy.run_path(str(HERE / "ansor_directions.py"))

BATCH = 64
"""Programs in a round, as in ``TuningOptions``."""
WARM_UP, EXPLORE = 3, 1
LAST_ROUND, OTHERS = 0.5, 0.1
"""Weight of the last round in a sketch's mean; share of programs kept from any other sketch."""


class AnsorTask:
    """A task with Ansor's policy, cost model, builder and runner; writes and counts the trials."""

    def __init__(self, spec: dict[str, Any], workload: str) -> None:
        import tvm
        from tvm import auto_scheduler as ansor

        self.folder = Path(spec["folder"])
        self.task = ansor.SearchTask(
            workload_key=workload, target=tvm.target.Target(spec["target"])
        )
        self.model = ansor.XGBModel(seed=spec["seed"] + 1, verbose_eval=0)
        # Ansor takes the seed 0 for no seed.
        self.policy = ansor.SketchPolicy(self.task, self.model, seed=spec["seed"] + 1, verbose=0)
        protocol = spec["protocol"]
        limit = spec["stock_build_timeout_s"]
        builders = os.cpu_count() or 1
        self.builder = ansor.LocalBuilder(timeout=int(limit or 30), n_parallel=builders)
        # As in Ansor's measurer: each call starts new processes, which takes a second or more.
        self.at_once = 2 * builders
        self.runner = ansor.LocalRunner(
            timeout=20,
            number=protocol["number"],
            repeat=protocol["repeat"],
            min_repeat_ms=protocol["min_repeat_ms"],
        )
        self.records = str(self.folder / "records.json")
        self.started = time.perf_counter()
        self.trials = 0
        self.rounds = 0

    def stock_round(self, size: int) -> int:
        """Let Ansor search and measure one round; return how many programs it measured."""
        from tvm.auto_scheduler.measure import ProgramMeasurer
        from tvm.auto_scheduler.measure_record import RecordToFile

        measurer = ProgramMeasurer(self.builder, self.runner, [RecordToFile(self.records)], 0)
        _, results = self.policy.continue_search_one_round(size, measurer)
        self.note(results)
        return len(results)

    def measure(self, states: list[Any], update: bool = True) -> list[float | None]:
        """Build and run programs; return their seconds (``None``: failed)."""
        from tvm.auto_scheduler.measure import MeasureInput
        from tvm.auto_scheduler.measure_record import save_records

        inputs = [MeasureInput(self.task, state) for state in states]
        results: list[Any] = []
        for begin in range(0, len(inputs), self.at_once):
            some = inputs[begin : begin + self.at_once]
            results += self.runner.run(some, self.builder.build(some, verbose=0), verbose=0)
        save_records(self.records, inputs, results)
        if update:
            self.model.update(inputs, results)
        return self.note(results)

    def note(self, results: Any) -> list[float | None]:
        """Write a round's rows; all latencies of a round become known when it ends."""
        clock = time.perf_counter() - self.started
        found: list[float | None] = []
        with (self.folder / "stock_trials.jsonl").open("a", encoding="utf-8") as written:
            for result in results:
                failed = result.error_no != 0
                costs = [float(cost) for cost in result.costs]
                found.append(None if failed else sum(costs) / len(costs))
                row = {
                    "clock_s": clock,
                    "latency_s": found[-1],
                    "batch": self.rounds,
                    "error": str(result.error_msg)[-200:] if failed else None,
                }
                written.write(json.dumps(row) + "\n")
        self.trials += len(found)
        self.rounds += 1
        return found


class SketchMeans:
    """Keeps the best sketch's programs of a sampled population, once the best is known.

    Han et al. 2025, section 4, algorithm 2. The mean throughput of each sketch's programs, as the
    cost model scores them and as measured. Last round and history count one half each.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = {}

    def kept(self, programs: list[Any], number: int, rng: Any) -> list[Any]:
        """Return the part of the population with which round ``number`` (from 0) begins."""
        if number < WARM_UP + EXPLORE or not self.means:
            return programs
        best = max(self.means, key=lambda sketch: self.means[sketch])
        mine = [p for p in programs if p.sketch == best or rng.random() < OTHERS]
        return mine or programs

    def scored(self, programs: list[Any], values: Any) -> None:
        """Add relative throughputs of a round's programs to the means."""
        by_sketch: dict[str, list[float]] = {}
        for program, value in zip(programs, values):  # noqa: B905 - Python 3.7
            if np.isfinite(value):
                by_sketch.setdefault(program.sketch, []).append(float(value))
        for sketch, mine in by_sketch.items():
            mean = float(np.mean(mine))
            old = self.means.get(sketch, mean)
            self.means[sketch] = LAST_ROUND * mean + (1.0 - LAST_ROUND) * old


class ChangedRounds:
    """Ansor's round in Python, with the changes of one arm."""

    def __init__(self, bench: AnsorTask, arm: str, seed: int, predict: Any) -> None:
        self.bench = bench
        self.sketches = SketchMeans() if arm.startswith("etc") else None
        self.own_evolution = arm != "etc-sketch"
        self.predict = predict
        """Returns the rule for each program, from its features; ``None``: rules are drawn."""
        self.rng = np.random.default_rng(seed)
        self.measured: dict[str, Any] = {}
        """By the text of a program: the program, and its seconds (``None``: it failed)."""
        default = bench.policy.DEFAULT_PARAMS
        self.population = default["evolutionary_search_population"]
        self.iterations = default["evolutionary_search_num_iters"]
        self.mutate = default["evolutionary_search_mutation_prob"]
        self.random_share = default["eps_greedy"]
        self.measured_share = default["sample_init_use_measured_ratio"]

    def round(self, size: int) -> int:
        """Search and measure one round of at most ``size`` programs; return the number measured."""
        bench, number = self.bench, self.bench.rounds
        sampled = STEPS["programs_of"](bench.task, bench.policy.sample_initial_population())
        ran = [each for each in self.measured.values() if each[1] is not None]
        if self.sketches is not None:
            if number >= WARM_UP:
                self.learn_sketches(self.sketches, sampled, ran)
            sampled = self.sketches.kept(sampled, number, self.rng)
        fastest = [program for program, _ in sorted(ran, key=lambda each: each[1])]
        begin = sampled + fastest[: int(self.measured_share * self.population)]
        # The policy does not know which programs were measured, so more are requested than needed.
        wanted = 2 * size + len(self.measured)
        if self.own_evolution:
            evolved = self.evolve(begin, wanted)
        else:
            found = bench.policy.evolutionary_search([p.state for p in begin], wanted)
            bounds = bench.task.compute_dag.infer_bound_from_state
            evolved = STEPS["programs_of"](bench.task, [bounds(state) for state in found])
        order = self.rng.permutation(len(begin))[: 3 * max(1, int(self.random_share * size))]
        chosen = self.pick(evolved, [begin[n] for n in order], size)
        taken = bench.measure([p.state for p in chosen]) if chosen else []
        for program, seconds in zip(chosen, taken):  # noqa: B905 - Python 3.7
            self.measured[program.key] = (program, seconds)
        return len(chosen)

    def pick(self, evolved: list[Any], at_random: list[Any], size: int) -> list[Any]:
        """Return the best programs and an epsilon share of random ones, none measured before."""
        good = size - int(self.random_share * size)
        best, rest = iter(evolved), iter(at_random)
        chosen: dict[str, Any] = {}
        while len(chosen) < size:
            first, second = (best, rest) if len(chosen) < good else (rest, best)
            program = next(first, None) or next(second, None)
            if program is None:
                break
            if program.key not in self.measured:
                chosen.setdefault(program.key, program)
        return list(chosen.values())

    def learn_sketches(self, sketches: SketchMeans, sampled: list[Any], ran: list[Any]) -> None:
        """Update the sketches' means with this round's sample and all measured programs."""
        values = list(self.bench.model.predict(self.bench.task, [p.state for p in sampled]))
        least = min((seconds for _, seconds in ran), default=0.0)
        values += [least / seconds for _, seconds in ran]
        sketches.scored(sampled + [program for program, _ in ran], values)

    def evolve(self, begin: list[Any], wanted: int) -> list[Any]:
        """Run Ansor's evolution with mutations in Python; return the best programs, best first."""
        population = begin
        best: dict[str, Any] = {}
        ranked: list[Any] = []
        for turn in range(self.iterations + 1):
            scores, features = DIRECTIONS["scored"](self.bench, population)
            for program, score in zip(population, scores.tolist()):  # noqa: B905 - Python 3.7
                if np.isfinite(score) and program.key not in self.measured:
                    best[program.key] = (score, program)
            ranked = sorted(best.values(), key=lambda each: -each[0])[:wanted]
            best = {program.key: (score, program) for score, program in ranked}
            if turn == self.iterations:
                break
            population = self.offspring(population, scores, features)
        return [program for _, program in ranked]

    def offspring(self, population: list[Any], scores: Any, features: Any) -> list[Any]:
        """Return the next population: parents drawn by score, mutated by a rule."""
        chances = np.where(np.isfinite(scores), np.maximum(scores, 0.0), 0.0) + 1e-9
        rules = None if self.predict is None else self.predict(features)
        children: list[Any] = []
        shares = chances / chances.sum()
        for parent in self.rng.choice(len(population), size=2 * self.population, p=shares).tolist():
            if len(children) == self.population:
                break
            child: Any = population[parent]
            if self.rng.random() < self.mutate:
                which = self.rng.choice(len(RULES), p=WEIGHTS) if rules is None else rules[parent]
                child = STEPS["mutated"](self.bench.task, child, RULES[which], self.rng)
            if child is not None:
                children.append(child)
        return children or population


def workload_key(text: str, shapes: Any) -> str:
    """Return the workload key of ``NAME:N`` or ``NAME(ARGUMENTS)``; else raise ``ValueError``.

    ``shapes`` has, for each operator of TVM's suite, its function and a list of arguments.
    """
    name, found, number = text.partition(":")
    if found and name in shapes and number.isdigit():
        known = shapes[name][1]
        if int(number) >= len(known):
            raise ValueError(f"{name} has {len(known)} shapes, from {name}:0 on")
        plain = [list(each) if isinstance(each, tuple) else each for each in known[int(number)]]
        return json.dumps([name, *plain])
    name, found, rest = text.partition("(")
    if not name or not rest.endswith(")"):
        raise ValueError(f"{text!r} is neither NAME:N nor NAME(ARGUMENTS)")
    try:
        return json.dumps([name, *json.loads("[" + rest[:-1] + "]")])
    except ValueError:
        raise ValueError(f"the arguments of {text!r} are not numbers") from None


def run_leg(spec: dict[str, Any]) -> dict[str, Any]:
    """Run a leg and return its summary; times in seconds."""
    if spec["arm"] == "learn":
        started = time.perf_counter()
        found = DIRECTIONS["learn"](spec, AnsorTask)
        return {"arm": "learn", "seconds": time.perf_counter() - started, **found}
    bench = AnsorTask(spec, spec["workload"])
    take_round = bench.stock_round
    if spec["arm"] != "stock":
        path = spec["classifier"]
        predict = DIRECTIONS["predictor"](path) if path else None
        take_round = ChangedRounds(bench, spec["arm"], spec["seed"], predict).round
    while bench.trials < spec["trials"]:
        if not take_round(min(BATCH, spec["trials"] - bench.trials)):
            break  # the space has no more programs
    return {"arm": spec["arm"], "seconds": time.perf_counter() - bench.started}


def main() -> None:
    """Run the leg of a spec file and write its summary beside the measurements."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if spec["affinity"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, spec["affinity"])
    folder = Path(spec["folder"])
    try:
        registered = [runpy.run_path(path) for path in spec["workloads"]]
        shapes = registered[0]["CONFIGS"]
        spec["raced"] = [workload_key(text, shapes) for text in spec["raced"]]
        spec["learn"] = [workload_key(text, shapes) for text in spec["learn"]]
        # Checked in every leg: a workload may be added to a race after the classifier was trained.
        if set(spec["raced"]) & set(spec["learn"]):
            raise ValueError("the classifier would learn from a raced workload")
        if "workload" in spec:
            spec["workload"] = workload_key(spec["workload"], shapes)
    except ValueError as error:
        told = {"what": str(error), "where": None, "cure": "check --workload, --learn, --workloads"}
        (folder / "error.json").write_text(json.dumps(told), encoding="utf-8")
        sys.exit(1)
    summary = run_leg(spec)
    half = folder / ".leg.json"
    half.write_text(json.dumps(summary, indent=2), encoding="utf-8")
    half.replace(folder / "leg.json")


if __name__ == "__main__":
    main()
