"""Kernels of a GPU program, from the loops that its trace binds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from toolkit.features.loops.nest import Floats, Nest
from toolkit.logs.formats.metaschedule.workload import WorkloadBlock


def list_kernels(
    nest: Nest,
    bound: Sequence[tuple[str, Floats | None, str]],
    blocks: Mapping[str, WorkloadBlock],
    inlined: Collection[str],
) -> None:
    """List the kernels: a binding to the grid opens the next one; vthreads come first.

    ``bound`` holds bindings in the order of the trace: a word, the loop's extent, its block.
    """
    unknown = np.full(nest.rows, np.nan)
    kernels: list[dict[str, Floats]] = []
    last: dict[str, Floats] = {}
    members: list[set[str]] = []
    for word, extent, block in bound:
        opens = word.startswith("blockIdx") and any(w.startswith("blockIdx") for w in last)
        if not kernels or (opens and word in last):
            last = {}
            kernels.append(last)
            members.append(set())
        members[-1].add(block)
        value = unknown if extent is None else extent
        # Blocks of one kernel share its threads: an axis that several bind is as long as the
        # longest (a reduction across threads binds one axis in every block).
        if word in last:
            value = np.fmax(last[word], value)
            if word.startswith("threadIdx"):
                nest.across = np.fmax(nest.across, value)
        last[word] = value
    nest.serial = _serial(nest.rows, kernels, members, blocks, inlined)
    kernels.sort(key=lambda kernel: not any(word.startswith("vthread") for word in kernel))
    for kernel in kernels:
        for axis, found in (
            ("blockIdx", nest.blocks),
            ("threadIdx", nest.threads),
            ("vthread", nest.vthreads),
        ):
            own = [extent for word, extent in kernel.items() if word.startswith(axis)]
            found.append(np.prod(np.stack([np.ones(nest.rows), *own]), axis=0))


def _serial(
    rows: int,
    kernels: Sequence[dict[str, Floats]],
    members: Sequence[set[str]],
    blocks: Mapping[str, WorkloadBlock],
    inlined: Collection[str],
) -> Floats | None:
    """Iterations that the busiest thread runs one after the other, over all kernels.

    A block is in the kernel that bound its loops last, else in the first; kernels follow one
    another. ``None`` where the workload was not read or nothing is bound.
    """
    if not kernels or not blocks:
        return None
    home = {block: number for number, own in enumerate(members) for block in own}
    total = np.zeros(rows)
    for name, block in blocks.items():
        if name in inlined:
            continue
        threads = np.ones(rows)
        for word, extent in kernels[home.get(name, 0)].items():
            if not word.startswith("vthread"):
                threads = threads * np.where(np.isfinite(extent), extent, 1.0)
        total += np.maximum(block.volume / threads, 1.0)
    return total
