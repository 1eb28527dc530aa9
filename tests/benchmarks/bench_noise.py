"""How well a record's noise is understood: readings of an occasion that was held out.

    python tests/benchmarks/bench_noise.py DATASET [DATASET ...]

For every task whose programs were read on three or more occasions, readings of one occasion (of
three: of each in turn) are predicted from the others: by a mean and one standard deviation for all
programs, and as ``toolkit.replay.record.noise`` tells latencies and noise apart. Printed are the
continuous ranked probability score (Gneiting and Raftery 2007; lower is better, in units of the
bulk of the noise) of all programs and of that tenth which is expected to be fastest, and how many
readings lie in their 90 % intervals; geometric means over tasks of one dataset and size. The level
of the occasion that was held out is taken off: nothing tells it beforehand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets import open_dataset
from toolkit.replay import RecordedTable, load_tables
from toolkit.replay.record.noise import PROBABILITIES, latency_quantiles

FloatArray = NDArray[np.float64]
DRAWS, ENOUGH, SMALL = 100, 30, 100
# More occasions than these tell nothing more.
OCCASIONS = 12


def logs_of(table: RecordedTable) -> FloatArray:
    """Logarithms of a task's readings, ``(candidates, occasions)``."""
    owner = np.repeat(np.arange(len(table)), table.occasions)
    turn = np.arange(len(owner)) - table.offsets[owner]
    logs = np.full((len(table), int(table.occasions.max())), np.nan)
    logs[owner, turn] = np.log(table.latency_s)
    logs = logs[:, :OCCASIONS]
    return logs[np.isfinite(logs).sum(axis=1) >= 3]


def levelled(logs: FloatArray) -> FloatArray:
    """Take each occasion's level off (median polish)."""
    levels = np.zeros(logs.shape[1])
    for _ in range(5):
        rest = logs - levels
        off = np.nanmedian(rest - np.nanmedian(rest, axis=1)[:, None], axis=0)
        levels += off - off.mean()
    return logs - levels


def by_mean(known: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw readings to come by means and one standard deviation."""
    counts = np.isfinite(known).sum(axis=1)
    means = np.nanmean(known, axis=1)
    squares = np.nansum((known - means[:, None]) ** 2) / (counts - 1).sum()
    spread = np.sqrt(squares * (1 + 1 / counts))
    return np.asarray(means + spread * rng.standard_normal((DRAWS, len(known))))


def by_shape(known: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw readings to come by the shapes of latencies and noise."""
    quantiles = latency_quantiles(known)
    drawn = np.empty((DRAWS, len(known)))
    for number in range(DRAWS):
        places = rng.random(len(known))
        latency = np.array(
            [np.interp(p, PROBABILITIES, row) for p, row in zip(places, quantiles, strict=True)]
        )
        noise = known - latency[:, None]
        drawn[number] = latency + rng.choice(noise[np.isfinite(noise)], len(known))
    return drawn


def judged(drawn: FloatArray, held: FloatArray, scale: float) -> list[float]:
    """Scores (logarithms) and coverage of all readings and of the fastest tenth."""
    middle = np.median(drawn, axis=0)
    held = held - np.median(held - middle)
    ordered = np.sort(drawn, axis=0)
    weight = (2 * np.arange(1, DRAWS + 1) - DRAWS - 1)[:, None]
    score = np.abs(drawn - held).mean(axis=0) - (weight * ordered).sum(axis=0) / DRAWS**2
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    inside = (low <= held) & (held <= high)
    fast = np.argsort(middle)[: max(8, len(held) // 10)]
    logs = [float(np.log(score[one].mean() / scale)) for one in (slice(None), fast)]
    return [*logs, float(inside.mean()), float(inside[fast].mean())]


def main() -> None:
    """Print one line a dataset, size and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path, nargs="+")
    methods: dict[str, Callable[[FloatArray, np.random.Generator], FloatArray]] = {
        "mean and deviation": by_mean,
        "shapes": by_shape,
    }
    for path in parser.parse_args().dataset:
        found: dict[tuple[str, str], list[list[float]]] = {}
        for table in load_tables(open_dataset(path)).values():
            logs = logs_of(table)
            size = f"fewer than {SMALL}" if len(logs) < SMALL else f"{SMALL} or more"
            for last in range(3) if logs.shape[1] == 3 else (0,):
                held, rest = logs[:, last], np.delete(logs, last, axis=1)
                told = np.isfinite(held) & (np.isfinite(rest).sum(axis=1) >= 2)
                if told.sum() < ENOUGH:
                    continue
                known = levelled(rest[told])
                apart = np.abs(np.diff(known, axis=1))
                scale = float(np.nanmedian(apart)) / 0.954
                if scale == 0.0:
                    continue
                for name, method in methods.items():
                    drawn = method(known, np.random.default_rng(last))
                    found.setdefault((size, name), []).append(judged(drawn, held[told], scale))
        for (size, name), rows in sorted(found.items()):
            score, fast, inside, fast_inside = np.mean(rows, axis=0)
            print(
                f"{path.name}, {size} programs, {len(rows)} occasions, {name}: score "
                f"{np.exp(score):.2f}, fastest tenth {np.exp(fast):.2f}; in their intervals "
                f"{inside:.0%}, {fast_inside:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
