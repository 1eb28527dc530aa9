"""First picks for operators that no log has: whole families left out, told by their names.

    python tests/benchmarks/bench_families.py DATASET [--recipe throughput] [--seeds 3] [--halves]

``toolkit train --split family`` takes families by their loops: all reductions are one, and so are
convolutions of one and two dimensions. Here softmax, norms, pools, means and sums are families of
their own, and so are convolutions of each kind: a user's network has one of these that is new, and
not all. Tasks with at least 100 candidates are judged.

With ``--halves`` the candidates of each task are judged in two random halves, by models without the
family and by models that know the other half of the very task: no model of this kind that was told
less can be expected to do better.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from toolkit.datasets import open_dataset
from toolkit.training import load_recipe, train_throughput
from toolkit.training.evaluate.metrics import task_metrics
from toolkit.training.members.crossfit import Member, cross_fit, predict_unseen
from toolkit.training.members.ensemble import fit_ensemble
from toolkit.training.table.gather import gather
from toolkit.training.table.table import Table

FAMILIES = {
    "depthwise": "depthwise",
    "batch_matmul_nkkm": "transposed product",
    "transpose_batch_matmul": "transposed product",
    "batch_matmul": "batched product",
    "conv1d": "convolution, 1D",
    "conv2d": "convolution, 2D",
    "softmax": "softmax",
    "norm": "norm",
    "pool": "pool",
    "mean": "mean",
    "sum": "sum",
    "matmul": "product",
    "dense": "product",
}
"""The first of these that a task's name holds says its family."""


def family_of(workload: str) -> str:
    """The family of a workload's name; the operator itself where none is known."""
    operator = workload.lower()
    return next((kind for part, kind in FAMILIES.items() if part in operator), operator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("--recipe", default="throughput")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--halves", action="store_true")
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    names = {one: task.workload for one, task in dataset.tasks().items()}
    Table.families = lambda self: tuple(family_of(names[one]) for one in self.task_ids)  # type: ignore[method-assign]
    recipe = load_recipe(options.recipe)
    split = recipe.split.model_copy(update={"by": "family"})
    if options.halves:
        compare_halves(dataset, recipe.model_copy(update={"split": split}), options.seeds)
        return
    rows: dict[str, list[Any]] = {}
    for seed in range(options.seeds):
        found = train_throughput(dataset, recipe.model_copy(update={"split": split, "seed": seed}))
        rows.setdefault("all", []).append((found.top1, found.top5, found.n_test_tasks))
        for family, figures in (found.families or {}).items():
            row = (figures["top1"], figures["top5"], figures["n_tasks"])
            rows.setdefault(family, []).append(row)
    print("| family | tasks | first pick | best of five |\n|---|---|---|---|")
    for family, own in rows.items():
        first, five, tasks = np.array(own).T
        print(f"| {family} | {tasks[0]:.0f} | {_told(first)} | {_told(five)} |")


def compare_halves(dataset: Any, recipe: Any, seeds: int) -> None:
    """Print first pick and best of five of halves, by family and for all, with 95 % by task."""
    most = recipe.data.table_rows
    table = gather(dataset, recipe.extractor, most=most)[0]
    # Of three seeds, the same halves.
    first = np.random.default_rng(7).random(len(table)) < 0.5
    judged = np.flatnonzero(table.good_counts() >= recipe.data.judged_records)
    figures = np.zeros((2, len(judged), 2))
    for seed in range(seeds):
        own = recipe.model_copy(update={"seed": seed})
        fitted = cross_fit(table, own, keep_all=False)
        known = [
            (_member(table, own, first == half), np.flatnonzero(first != half))
            for half in (True, False)
        ]
        for which, judges in enumerate((fitted.judges(table), known)):
            predicted, preferred = predict_unseen(table, judges)
            for place, number in enumerate(judged.tolist()):
                for half in (True, False):
                    rows = np.flatnonzero((table.task == number) & table.good & (first == half))
                    found = task_metrics(table.latency_s[rows], predicted[rows], preferred[rows])
                    figures[which, place] += np.array([found.top1, found.top5]) / 2 / seeds
    families = np.array(table.families())[judged]
    print("| family | tasks | family left out | half of the task known |\n|---|---|---|---|")
    for family in ("all", *sorted(set(families))):
        mine = figures[:, families == family] if family != "all" else figures
        cells = [f"{one[:, 0].mean():.3f}, {one[:, 1].mean():.3f}" for one in mine]
        print(f"| {family} | {mine.shape[1]} | {cells[0]} | {cells[1]} |")
    drawn = np.random.default_rng(0).integers(len(judged), size=(10_000, len(judged)))
    for name, one in zip(("family left out", "half known"), figures, strict=True):
        low, high = np.quantile(one[drawn].mean(axis=1), [0.025, 0.975], axis=0)
        print(f"{name}: {low.round(3).tolist()} to {high.round(3).tolist()}")


def _member(table: Table, recipe: Any, told: np.ndarray) -> Member:
    """A model of all candidates of one half, of every task."""
    ensemble = fit_ensemble(table, np.flatnonzero(table.good & told), recipe, threads=1)
    return Member("half", ensemble, frozenset(), frozenset())


def _told(values: np.ndarray) -> str:
    """Mean over seeds, and each of them."""
    return f"{values.mean():.3f} ({', '.join(f'{one:.3f}' for one in values)})"


if __name__ == "__main__":
    main()
