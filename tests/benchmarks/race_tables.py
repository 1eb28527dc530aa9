"""The tables of a race's page, from the raw files beside it.

    python tests/benchmarks/race_tables.py docs/results/two-threads

Every ``race*.json`` of the folder holds legs of the same race, made on other days or with other
seeds. Every ``again*.json`` holds confirmations of some of these legs in another session, as
``race.json`` has them under ``confirmed``. ``baselines*.json`` are races with further arms,
``full*.json`` races without short first readings, ``long*.json`` races of more trials. A test holds
the page to what this prints.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from toolkit.live.race.quality import add_moments, add_tolerances
from toolkit.live.race.report import add_quality, geometric_mean, sum_moments, sum_tolerances

# Measured for the models on two cores of each kind of processor on which layers were raced.
DATASETS = Path(__file__).parents[2] / "datasets"
LOGS = {"znver4": "epyc-znver4-2core", "znver3": "epyc-znver3-2core-random"}

MEANS = {
    "S, wall clock": ("quality_seconds", "quality_at_least_seconds"),
    "S, trials": ("quality_trials", "quality_at_least_trials"),
}


def legs_of(folder: Path) -> list[dict[str, Any]]:
    """Rows of all races, each with its confirmation under ``confirmed``, by layer and seed."""
    found = []
    for path in sorted(folder.glob("race*.json")):
        race = json.loads(path.read_bytes())
        again = {(one["task"], one["seed"]): one for one in race["confirmed"]}
        mcpu = json.loads(race["target"])["mcpu"]
        for row in race["rows"]:
            confirmed = again[row["task"], row["seed"]]
            found.append({**row, "mcpu": mcpu, "confirmed": confirmed})
    return sorted(found, key=lambda row: (row["task"], row["seed"]))


def bracketed(value: float, bounds: Sequence[float] | None, digits: int = 3) -> str:
    """A figure and its interval."""
    ends = "" if bounds is None else f" [{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]"
    return f"{value:.{digits}f}{ends}"


def share(row: Mapping[str, Any], what: str, least: str) -> str:
    """An S; with ``>`` where it is what was spent without getting there."""
    known = row[what] is not None
    value = row[what if known else least]
    text = f"{value:.3f}" if value < 0.1995 else f"{value:.2f}"
    return text if known else f"> {text}"


def table(legs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One row a leg."""
    heads = ["layer", "processor", "seed", "stock's 500 trials", "ours", *MEANS]
    heads += ["final latency [95 %]", "blocks over searches"]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for row in legs:
        again = row["confirmed"]
        final = again["finals"][row["arm"]]
        cells = (
            f"`{row['task']}`",
            row["mcpu"],
            str(row["seed"]),
            f"{row['stock_seconds']:.0f} s",
            f"{row['seconds']:.0f} s",
            *(share(row, *keys) for keys in MEANS.values()),
            bracketed(final["ratio"], final["interval"]),
            f"{again['slowed_by']:.2f}",
        )
        yield "| " + " | ".join(cells) + " |"


def means(legs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Geometric means over layers and seeds, and how many legs got there."""

    def mean(value: Any) -> dict[str, Any]:
        found = geometric_mean([(row["task"], row["seed"], value(row)) for row in legs])
        assert found is not None
        return found

    yield "| geometric mean | value [95 % over layers and seeds] |"
    yield "|---|---|"
    for name, (what, least) in MEANS.items():
        found = mean(lambda row, what=what, least=least: row[what] or row[least])
        yield f"| {name} | {bracketed(found['value'], found['interval'], 2)} |"
    found = mean(lambda row: row["confirmed"]["finals"][row["arm"]]["ratio"])
    yield f"| final latency | {bracketed(found['value'], found['interval'])} |"
    there = sum(row["quality_seconds"] is not None for row in legs)
    yield f"| legs that had stock's quality | {there} of {len(legs)} |"
    ours, stock = (sum(row[key] for row in legs) for key in ("seconds", "stock_seconds"))
    yield f"| all trials, ours and stock's | {ours:,.0f} s, {stock:,.0f} s |"


def mean_of(found: Mapping[str, Any] | None, digits: int = 2) -> str:
    """A geometric mean and its interval, a dash without one."""
    return "-" if found is None else bracketed(found["value"], found["interval"], digits)


def tolerances(legs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """S by how much slower than stock's final program a program may be."""
    yield "| as good is within | legs that got there | S, wall clock | S, trials |"
    yield "|---|---|---|---|"
    for one in sum_tolerances(legs):
        cells = (f"{100 * one['tolerance']:.0f} %", f"{one['reached']} of {one['legs']}")
        yield f"| {' | '.join((*cells, mean_of(one['seconds']), mean_of(one['trials'])))} |"


def moments(legs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What each side held at a time."""
    yield "| after | ours: legs with a program near, latency | stock: the same |"
    yield "|---|---|---|"
    for one in sum_moments(legs):
        ours, stock = (
            f"{one[count]} of {one['legs']}, {mean_of(one[what])}"
            for count, what in (("held", "ratio"), ("stock_held", "stock_ratio"))
        )
        yield f"| {one['seconds']:.0f} s | {ours} | {stock} |"


def account(legs: Sequence[Mapping[str, Any]], collected_s: float) -> Iterator[str]:
    """Wall clock summed over legs, alone and with what was measured for the models before."""

    def spent(row: Mapping[str, Any], arm: str, total: str) -> float:
        found = row["confirmed"]["as_good"][arm]
        return float(row[total] if found is None else found["clock_s"])

    stock = sum(spent(row, "stock", "stock_seconds") for row in legs) / len(legs)
    ours = sum(spent(row, row["arm"], "seconds") for row in legs) / len(legs)
    (mcpu,) = {row["mcpu"] for row in legs}
    yield f"| {mcpu}: seconds until stock's quality, or all of a leg | mean a leg | over stock's |"
    yield "|---|---|---|"
    yield f"| stock | {stock:.0f} | 1 |"
    yield f"| ours | {ours:.0f} | {ours / stock:.2f} |"
    for layers in (1, 6, 40):
        cold = ours + collected_s / layers
        label = f"ours and the models' logs ({collected_s:,.0f} s), for {layers}"
        yield f"| {label} layer{'s' if layers > 1 else ''} | {cold:.0f} | {cold / stock:.2f} |"
    even = collected_s / (stock - ours)
    yield f"| layers at which the logs have paid | {math.ceil(even)} | |"


def collected(logs: Path) -> float:
    """Seconds that it took to measure bundled logs: without pauses of over two minutes."""
    times = sorted(
        json.loads(line)["timestamp"]
        for path in sorted(logs.rglob("database_trials.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    )
    gaps = (later - earlier for earlier, later in pairwise(times))
    return float(sum(gap for gap in gaps if gap <= 120.0))


def sessions(folder: Path, legs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a second session of confirmation said of the same final programs."""
    first = {(row["task"], row["seed"]): row for row in legs}
    yield "| layer | seed | final latency, first session | second session | S, wall clock | then |"
    yield "|---|---|---|---|---|---|"
    for path in sorted(folder.glob("again*.json")):
        for one in json.loads(path.read_bytes()):
            row = first[one["task"], one["seed"]]
            finals = [each["finals"][row["arm"]] for each in (row["confirmed"], one)]
            said = [bracketed(final["ratio"], final["interval"]) for final in finals]
            anew = dict(row)
            add_quality(anew, one)
            said += [share(each, *MEANS["S, wall clock"]) for each in (row, anew)]
            yield f"| `{one['task']}` | {one['seed']} | {' | '.join(said)} |"


def arms_of(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Rows of races with several arms, each with its final latency over stock's, by layer."""
    found = []
    for path in sorted(paths):
        race = json.loads(path.read_bytes())
        finals = {(one["task"], one["seed"]): one["finals"] for one in race["confirmed"]}
        for row in race["rows"]:
            found.append({**row, "final": finals[row["task"], row["seed"]][row["arm"]]})
    return sorted(found, key=lambda row: (row["task"], row["seed"]))


def arms(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One row an arm of each leg."""
    heads = ["layer", "arm", "seconds", "stock's", *MEANS, "final latency over stock's [95 %]"]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        cells = (
            f"`{row['task']}`",
            f"`{row['arm']}`",
            f"{row['seconds']:.0f}",
            f"{row['stock_seconds']:.0f}",
            *(share(row, *keys) for keys in MEANS.values()),
            bracketed(row["final"]["ratio"], row["final"]["interval"]),
        )
        yield "| " + " | ".join(cells) + " |"


def arms_means(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Geometric means of each arm over layers."""
    yield (
        "| arm, mean over layers | legs that got there | " + " | ".join((*MEANS, "latency")) + " |"
    )
    yield "|---|---|---|---|---|"
    for arm in dict.fromkeys(row["arm"] for row in rows):
        of = [row for row in rows if row["arm"] == arm]
        values = [[row[what] or row[least] for row in of] for what, least in MEANS.values()]
        values.append([row["final"]["ratio"] for row in of])
        means = [
            geometric_mean([(row["task"], row["seed"], x) for row, x in zip(of, each, strict=True)])
            for each in values
        ]
        there = sum(row["quality_seconds"] is not None for row in of)
        *shares, latency = means
        cells = (f"`{arm}`", f"{there} of {len(of)}", *map(mean_of, shares), mean_of(latency, 3))
        yield "| " + " | ".join(cells) + " |"


def drift(curves: Path, every: int) -> Iterator[str]:
    """Below what a tenth of so many trials read, one after the other: the host's speed shows."""
    read = pl.read_parquet(curves).with_columns(((pl.col("trial") - 1) // every).alias("part"))
    low = read.group_by("arm", "part", maintain_order=True).agg(pl.col("latency_s").quantile(0.1))
    parts = sorted(set(low["part"]))
    yield "| µs, from trial | " + " | ".join(f"{1 + part * every:,}" for part in parts) + " |"
    yield "|---" * (len(parts) + 1) + "|"
    for (arm,), of in low.group_by("arm", maintain_order=True):
        values = of.sort("part")["latency_s"]
        yield f"| `{arm}` | " + " | ".join(f"{1e6 * value:.1f}" for value in values) + " |"


def tables(folder: Path) -> list[str]:
    """All of them, as Markdown: legs, means, costs and, where there are any, those of other files.

    Second sessions, further arms and races of more trials.
    """
    legs = legs_of(folder)
    for row in legs:
        add_tolerances(row, row["confirmed"])
        add_moments(row, row["confirmed"])
    parts = [table(legs), means(legs), tolerances(legs), moments(legs)]
    for mcpu in sorted({row["mcpu"] for row in legs}, reverse=True):
        of_kind = [row for row in legs if row["mcpu"] == mcpu]
        parts.append(account(of_kind, collected(DATASETS / LOGS[mcpu])))
    if any(folder.glob("again*.json")):
        parts.append(sessions(folder, legs))
    if rows := arms_of(folder.glob("baselines*.json")):
        parts += [arms(rows), arms_means(rows)]
    if rows := arms_of(folder.glob("full*.json")):
        parts += [arms(rows), arms_means(rows)]
    if rows := arms_of(folder.glob("long*.json")):
        parts.append(arms(rows))
        parts += [drift(path, 200) for path in sorted(folder.glob("long*-curves.parquet"))]
    return ["\n".join(part) for part in parts]


if __name__ == "__main__":
    print("\n\n".join(tables(Path(sys.argv[1]))))
