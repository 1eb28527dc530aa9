"""How long a recorded measurement took, where the log says it, and a stated model where not."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from toolkit.datasets.read.seconds import LONGEST_GAP_S, dated_seconds, timed_seconds
from toolkit.toml_file import Settings


class CostModel(Settings):
    """Seconds of a measurement that the log does not time.

    A measurement is a build and then ``repeats`` runs of the program, each going on for at least
    ``minimal_run_s`` (TVM's ``min_repeat_ms``); a failure costs a build. The default is what one
    trial of MetaSchedule costs on a CPU of two cores: about a second, half of it building.
    """

    build_s: float = Field(default=0.5, gt=0)
    repeats: int = Field(default=3, ge=1, le=1_000_000)
    minimal_run_s: float = Field(default=0.1, ge=0)
    failed_s: float = Field(default=0.5, ge=0)
    longest_gap_s: float = Field(
        default=LONGEST_GAP_S,
        gt=0,
        description="A longer gap between timestamps is a pause, not a measurement.",
    )

    def seconds(self, latency_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cost of measurements with these latencies (NaN: failed)."""
        runs = self.repeats * np.maximum(latency_s, self.minimal_run_s)
        return np.where(np.isnan(latency_s), self.failed_s, self.build_s + runs)


def elapsed_seconds(
    records: pl.DataFrame, cost: CostModel
) -> tuple[NDArray[np.float64], dict[str, int]]:
    """Seconds of each record: recorded, else the gap between timestamps, else the cost model.

    Records must be in the order of their source; ``dated_seconds`` says which gaps are believed.
    Returned are the seconds, and how many came from where.
    """
    known = records.select(
        elapsed=timed_seconds(), gap=dated_seconds(cost.longest_gap_s), latency="latency_s"
    )
    elapsed, gap, latency = (column.to_numpy().astype(np.float64) for column in known)
    recorded = np.isfinite(elapsed)
    timed = ~recorded & np.isfinite(gap)
    seconds = np.where(recorded, elapsed, np.where(timed, gap, cost.seconds(latency)))
    counts = {"recorded": recorded, "timestamps": timed, "cost_model": ~recorded & ~timed}
    return seconds, {source: int(which.sum()) for source, which in counts.items()}
