"""First picks for operators that no log has: whole families left out, told by their names.

    python tests/benchmarks/bench_families.py DATASET [--recipe throughput] [--seeds 3]

``toolkit train --split family`` takes families by their loops: all reductions are one, and so are
convolutions of one and two dimensions. Here softmax, norms, pools, means and sums are families of
their own, and so are convolutions of each kind: a user's network has one of these that is new, and
not all. Tasks with at least 100 candidates are judged.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from toolkit.datasets import open_dataset
from toolkit.training import load_recipe, train_throughput
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
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    names = {one: task.workload for one, task in dataset.tasks().items()}
    Table.families = lambda self: tuple(family_of(names[one]) for one in self.task_ids)  # type: ignore[method-assign]
    rows: dict[str, list[Any]] = {}
    for seed in range(options.seeds):
        recipe = load_recipe(options.recipe)
        split = recipe.split.model_copy(update={"by": "family"})
        found = train_throughput(dataset, recipe.model_copy(update={"split": split, "seed": seed}))
        rows.setdefault("all", []).append((found.top1, found.top5, found.n_test_tasks))
        for family, figures in (found.families or {}).items():
            row = (figures["top1"], figures["top5"], figures["n_tasks"])
            rows.setdefault(family, []).append(row)
    print("| family | tasks | first pick | best of five |\n|---|---|---|---|")
    for family, own in rows.items():
        first, five, tasks = np.array(own).T
        print(f"| {family} | {tasks[0]:.0f} | {_told(first)} | {_told(five)} |")


def _told(values: np.ndarray) -> str:
    """Mean over seeds, and each of them."""
    return f"{values.mean():.3f} ({', '.join(f'{one:.3f}' for one in values)})"


if __name__ == "__main__":
    main()
