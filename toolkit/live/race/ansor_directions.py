"""A classifier for the rule that mutates an Ansor program: Han et al. 2025, section 3.

A script for Python 3.7 or later with a TVM that has ``auto_scheduler``, and xgboost. Each random
program is mutated once by each rule, and all mutants are measured. The label of a program is the
rule with the highest gain. The features are Ansor's features of the program before the mutation.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np

STEPS = runpy.run_path(str(Path(__file__).with_name("ansor_steps.py")))
RULES, WEIGHTS = STEPS["RULES"], STEPS["WEIGHTS"]

RANDOM = np.random.default_rng()
"""For random scores while the cost model has learned nothing."""
MUTANTS_OF = 48
"""Random programs of each workload that are mutated and measured."""
EQUAL_GAINS = 0.01
"""Gains of two rules that differ by less count as equal; then Ansor's weights decide."""


def scored(bench: Any, programs: list[Any]) -> Any:
    """Return the cost model's scores, and Ansor's features: ``(stores, 164)`` per program."""
    from tvm.auto_scheduler.cost_model import xgb_model
    from tvm.auto_scheduler.feature import get_per_store_features_from_states

    model = bench.model
    found = get_per_store_features_from_states([p.state for p in programs], bench.task)
    if model.bst is not None and len(model.inputs) > model.num_warmup_sample:
        matrix, owners = xgb_model.feature_to_pack_sum_xgbmatrix(found)
        scores = xgb_model.predict_throughput_pack_sum(model.bst.predict(matrix), owners)
    else:
        scores = RANDOM.uniform(0, 1, len(programs))
    # As in Ansor: a program that could not be lowered has no features.
    failed = np.array([each.min() == each.max() == 0 for each in found])
    return np.where(failed, -np.inf, scores), found


def rows_of(found: Any) -> Any:
    """Return features ``(programs, columns)``: maximum over stores, last store, store count."""
    return np.array(
        [np.concatenate([np.max(f, axis=0), f[-1], [len(f)]]) for f in found], dtype=np.float32
    )


def predictor(path: str) -> Any:
    """Return a function from features of programs to the number of each one's most promising rule.

    ``path`` is the classifier that ``learn`` wrote; it has one class for each rule.
    """
    import xgboost

    classifier = xgboost.Booster(model_file=path)
    return lambda found: classifier.predict(xgboost.DMatrix(rows_of(found))).argmax(axis=1)


def label(parent: float, children: list[float | None]) -> int:
    """Return the rule with the highest gain; among nearly equal gains Ansor's weights decide."""
    gains = [-np.inf if child is None else parent / child - 1.0 for child in children]
    near = [n for n, gain in enumerate(gains) if gain >= max(gains) - EQUAL_GAINS]
    return max(near, key=lambda n: WEIGHTS[n])


def learn(spec: dict[str, Any], opened: Any) -> dict[str, Any]:
    """Measure every rule's mutant of random programs; train and write the classifier.

    ``opened`` takes a spec and a workload key, and returns an object that builds and runs programs.
    """
    import xgboost

    rng = np.random.default_rng(spec["seed"])
    rows: list[Any] = []
    labels: list[int] = []
    for workload in spec["learn"]:
        bench = opened(spec, workload)
        sampled = list(bench.policy.sample_initial_population())
        parents = [sampled[n] for n in rng.permutation(len(sampled))[:MUTANTS_OF]]
        programs = STEPS["programs_of"](bench.task, parents)
        mutants = [[STEPS["mutated"](bench.task, p, rule, rng) for rule in RULES] for p in programs]
        every = list(programs) + [m for mine in mutants for m in mine if m is not None]
        taken = iter(bench.measure([p.state for p in every], update=False))
        before = [next(taken) for _ in programs]
        after = [[None if m is None else next(taken) for m in mine] for mine in mutants]
        _, found = scored(bench, programs)
        for seconds, children, row in zip(before, after, rows_of(found)):  # noqa: B905 - Python 3.7
            if seconds is not None and any(child is not None for child in children):
                rows.append(row)
                labels.append(label(seconds, children))
    settings = {
        "objective": "multi:softprob",
        "num_class": len(RULES),
        "max_depth": 6,
        "eta": 0.1,
        "seed": spec["seed"],
        "nthread": 1,
    }
    matrix = xgboost.DMatrix(np.array(rows), np.array(labels))
    model = xgboost.train(settings, matrix, num_boost_round=100)
    model.save_model(str(Path(spec["folder"]) / "classifier.json"))
    counts = {rule: labels.count(n) for n, rule in enumerate(RULES)}
    return {"programs": len(rows), "best_rule": counts}
