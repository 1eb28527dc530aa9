"""Which tasks are left out together, so that a judged workload was never trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.features.task.operation import FAMILIES
from toolkit.training.arrays import Ints
from toolkit.training.recipes.recipe import SplitOptions
from toolkit.training.table.table import Table


def assign_folds(
    table: Table,
    options: SplitOptions,
    seed: int,
    networks: Sequence[tuple[str, ...]] = (),
) -> Ints:
    """Give each task (by number) a fold; tasks of one workload always share theirs.

    With ``by = "network"`` or ``"machine"`` a fold is a network or a machine. A workload that
    several networks hold is put with the first of them, and is then in no training set of that
    fold. With ``by = "task"`` each family of operators is spread evenly over the folds: of a rare
    one a fold then leaves out as few as it can. Nothing measured enters: folds depend on names,
    families and the seed alone.
    """
    if options.by == "machine":
        # A machine's fold leaves out its tasks; the same workload elsewhere may be learned from,
        # since carrying it over is what is judged.
        return _number(table.machines)
    if options.by == "network":
        named = [names[0] if names else "" for names in networks] or [""] * len(table.task_ids)
        first: dict[str, str] = {}
        for workload, name in zip(table.workloads, named, strict=True):
            first[workload] = min(first.get(workload, name), name)
        return _number([first[workload] for workload in table.workloads])
    workloads = _number(table.workloads)
    count = len(set(table.workloads))
    wanted = options.folds
    if wanted == "auto":
        cheap = int(table.good.sum()) <= options.leave_one_out_rows
        wanted = count if count <= options.leave_one_out and cheap else 10
    order = np.random.default_rng(seed).permutation(count)
    order = order[np.argsort(_families(table, workloads, count)[order], kind="stable")]
    fold_of = np.empty(count, dtype=np.int64)
    fold_of[order] = np.arange(count) % max(2, min(wanted, count))
    return fold_of[workloads]


def _families(table: Table, workloads: Ints, count: int) -> Ints:
    """Family of each workload by number: the one that most of its candidates have (-1: unknown)."""
    if "op_family" not in table.columns:
        return np.full(count, -1, dtype=np.int64)
    family = table.features[:, table.columns.index("op_family")]
    known = np.isfinite(family)
    pairs = workloads[table.task[known]] * len(FAMILIES) + family[known].astype(np.int64)
    held = np.bincount(pairs, minlength=count * len(FAMILIES)).reshape(count, len(FAMILIES))
    return np.where(held.any(axis=1), held.argmax(axis=1), -1)


def _number(names: Sequence[str]) -> Ints:
    known = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([known[name] for name in names], dtype=np.int64)
