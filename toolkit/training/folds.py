"""Which tasks are left out together, so that a judged workload was never trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolkit.training.recipe import SplitOptions
from toolkit.training.table import Table


def assign_folds(
    table: Table,
    options: SplitOptions,
    seed: int,
    networks: Sequence[tuple[str, ...]] = (),
) -> NDArray[np.int64]:
    """Give each task (by number) a fold; tasks of one workload always share theirs.

    With ``by = "network"`` or ``"machine"`` a fold is a network or a machine. A workload that
    several networks hold is put with the first of them, and is then in no training set of that
    fold. Nothing measured enters: folds depend on names and the seed alone.
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
    n_workloads = int(workloads.max()) + 1 if len(workloads) else 0
    few = n_workloads <= options.leave_one_out
    cheap = int(table.good.sum()) <= options.leave_one_out_rows
    automatic = n_workloads if few and cheap else 10
    wanted = automatic if options.folds == "auto" else options.folds
    folds = max(2, min(wanted, n_workloads))
    order = np.random.default_rng(seed).permutation(n_workloads)
    fold_of = np.empty(n_workloads, dtype=np.int64)
    fold_of[order] = np.arange(n_workloads) % folds
    return fold_of[workloads]


def _number(names: Sequence[str]) -> NDArray[np.int64]:
    known = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([known[name] for name in names], dtype=np.int64)
