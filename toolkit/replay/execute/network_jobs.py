"""The work of replayed networks: one piece a network, scheduler and seed, in any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from toolkit.progress import Progress
from toolkit.replay.execute.networks import (
    NetworkBench,
    find_networks,
    network_metrics,
    replay_network,
)
from toolkit.replay.execute.parts import Parts
from toolkit.replay.execute.pieces import finish
from toolkit.replay.record.models import Models, opened
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario
from toolkit.replay.statistics.metrics import NAMES
from toolkit.replay.statistics.statistics import Resamples, interval, mean, median


@dataclass(frozen=True)
class NetworkPiece:
    """One run: a network under a scheduler and a seed."""

    network: str
    weights: dict[str, float]
    scheduler: str
    seed: int

    @property
    def name(self) -> tuple[str, ...]:
        """Under which the piece is kept."""
        return ("network", self.network, self.scheduler, str(self.seed))

    @property
    def note(self) -> str:
        """What progress says."""
        return f"{self.network} {self.scheduler}"


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
        NetworkPiece(name, weights, scheduler, seed)
        for name, weights in networks.items()
        for scheduler in scenario.network.schedulers
        for seed in range(scenario.seeds)
    ]
    maker = _Maker(tables, models, scenario)
    rows = finish("scheduling", pieces, maker, parts, progress, workers)
    return {
        "networks": {name: {"tasks": weights} for name, weights in networks.items()},
        "schedulers": _summarise(rows, list(networks), scenario),
        "runs": rows,
    }


@dataclass
class _Maker:
    """What pieces are made with; models are loaded for the first one."""

    tables: Mapping[str, RecordedTable]
    models: Models
    scenario: Scenario

    @cached_property
    def _opened(self) -> NetworkBench:
        return NetworkBench(self.tables, opened(self.models))

    def size(self, piece: NetworkPiece) -> int:
        return len(piece.weights)

    def run(self, piece: NetworkPiece) -> dict[str, Any]:
        best = sum(w * float(self.tables[t].best_s or np.inf) for t, w in piece.weights.items())
        run, objective = replay_network(
            self._opened, piece.weights, piece.scheduler, self.scenario, piece.seed
        )
        row = {"network": piece.network, "scheduler": piece.scheduler, "seed": piece.seed}
        return row | network_metrics(run, objective, best)


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
