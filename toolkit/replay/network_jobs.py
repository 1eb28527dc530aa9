"""The work of replayed networks: one piece a network, scheduler and seed, in any process.

Pieces do not depend on each other, and each is kept when it is done: any number of workers gives
the same bytes, and a simulation that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from toolkit.progress import Progress
from toolkit.replay.jobs import Models
from toolkit.replay.metrics import NAMES
from toolkit.replay.models import ModelSet, load_models
from toolkit.replay.networks import Bench, find_networks, network_metrics, replay_network
from toolkit.replay.parts import Parts
from toolkit.replay.processes import in_processes
from toolkit.replay.scenario import Scenario
from toolkit.replay.statistics import Resamples, interval, mean, median
from toolkit.replay.table import RecordedTable


@dataclass(frozen=True)
class Piece:
    """One run: a network under a scheduler and a seed."""

    network: str
    weights: dict[str, float]
    scheduler: str
    seed: int

    @property
    def name(self) -> tuple[str, ...]:
        """Under which the piece is kept."""
        return ("network", self.network, self.scheduler, str(self.seed))


def simulate_networks(
    dataset: Any,
    tables: Mapping[str, RecordedTable],
    scenario: Scenario,
    models: Models,
    parts: Parts,
    progress: Progress,
    workers: int = 1,
) -> dict[str, Any]:
    """Replay every network with every scheduler; see ``docs/explanation/replay.md``."""
    assert scenario.network is not None
    networks = find_networks(dataset, list(tables), scenario.network.by)
    pieces = [
        Piece(name, weights, scheduler, seed)
        for name, weights in networks.items()
        for scheduler in scenario.network.schedulers
        for seed in range(scenario.seeds)
    ]
    todo = [piece for piece in pieces if parts.kept(piece.name) is None]
    with progress.step("scheduling", len(pieces)) as step:
        done = len(pieces) - len(todo)
        step.advance(done, note="resumed" if done else None)
        if workers <= 1 or len(todo) <= 1:
            bench = Bench(tables, _loaded(models)) if todo else None
            for piece in todo:
                assert bench is not None
                _run(piece, bench, scenario, parts)
                step.advance(note=f"{piece.network} {piece.scheduler}")
        else:
            # The largest first, so that no worker begins a long one when the others are done.
            todo.sort(key=lambda p: (-len(p.weights), p.name))
            shared = (dict(tables), models, scenario, parts)
            for note in in_processes(_work, [(p,) for p in todo], workers, _start, shared):
                step.advance(note=note)
    rows = [parts.kept(piece.name) for piece in pieces]
    return {
        "networks": {name: {"tasks": weights} for name, weights in networks.items()},
        "schedulers": _summarise(rows, list(networks), scenario),
        "runs": rows,
    }


def _run(piece: Piece, bench: Bench, scenario: Scenario, parts: Parts) -> None:
    best = sum(w * float(bench.tables[t].best_s or np.inf) for t, w in piece.weights.items())
    run, objective = replay_network(bench, piece.weights, piece.scheduler, scenario, piece.seed)
    row = {"network": piece.network, "scheduler": piece.scheduler, "seed": piece.seed}
    parts.keep(piece.name, row | network_metrics(run, objective, best))


def _loaded(models: Models) -> ModelSet:
    return models if isinstance(models, ModelSet) else load_models(models)


_worker: list[tuple[Bench, Scenario, Parts]] = []


def _start(
    tables: Mapping[str, RecordedTable], models: Models, scenario: Scenario, parts: Parts
) -> None:
    _worker[:] = [(Bench(tables, _loaded(models)), scenario, parts)]


def _work(piece: Piece) -> str:
    _run(piece, *_worker[0])
    return f"{piece.network} {piece.scheduler}"


def _summarise(
    rows: Sequence[Mapping[str, Any]], networks: Sequence[str], scenario: Scenario
) -> dict[str, Any]:
    assert scenario.network is not None
    resamples = Resamples.draw(len(networks), scenario.seeds, scenario.resamples)
    frame = pl.DataFrame(
        [{k: v for k, v in row.items() if k != "curve"} for row in rows], strict=False
    )
    out: dict[str, Any] = {}
    for scheduler in scenario.network.schedulers:
        mine = frame.filter(pl.col("scheduler") == scheduler)
        summary: dict[str, Any] = {"scheduler": scheduler}
        for name in NAMES:
            for unit in ("evaluations", "seconds"):
                values = np.array(
                    mine[f"{unit}_to_{name}"].cast(pl.Float64).fill_null(np.inf).to_list()
                ).reshape(len(networks), scenario.seeds)
                low, high = interval(values, median, resamples, scenario.confidence)
                figures = (float(median(values.reshape(-1))), low, high)
                shown = [f if np.isfinite(f) else None for f in figures]
                summary[f"median_{unit}_to_{name}"] = shown[0]
                summary[f"median_{unit}_to_{name}_interval"] = shown[1:]
            reached = np.isfinite(values).astype(np.float64)
            summary[f"reached_share_{name}"] = float(mean(reached.reshape(-1)))
        out[scheduler] = summary
    return out
