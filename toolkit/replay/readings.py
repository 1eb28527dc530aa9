"""The noise of a record with several readings a candidate, and what readings to come may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from toolkit.errors import DatasetError
from toolkit.replay.table import RecordedTable

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

SMOOTH = 1.5
"""Width of the kernel of the density of latencies, in standard deviations of the noise.

A compromise: on held-out occasions of three records the fastest twentieth of the candidates come
out 0.19, -0.03 and -0.06 standard deviations of a reading slower than expected (0.53, 0.06 and 0.13
without any correction); 1 corrects two of them too much, 3 the first too little.
"""

_CELLS = 2048


@dataclass(frozen=True)
class PosteriorDraw:
    """One posterior draw: latencies that all candidates may have, given what was recorded.

    Attributes
    ----------
    log_latency
        ``(n,)``: logarithm of seconds; NaN where no reading ever succeeded.
    noise
        Logarithms by which readings differ from it, one after the other.
    """

    log_latency: FloatArray
    noise: FloatArray

    def read(self, numbers: IntArray, places: IntArray) -> FloatArray:
        """Return a reading in seconds of each candidate, given by number.

        ``places`` say where in the noise each is taken, ``(len(numbers),)``; after its end it
        begins anew.
        """
        slower = self.noise[places % len(self.noise)]
        seconds: FloatArray = np.exp(self.log_latency[numbers] + slower)
        return seconds


@dataclass(frozen=True)
class Readings:
    """What is known of the readings of one task, in logarithms of seconds.

    A reading is taken to be a candidate's latency, times the machine's level on that occasion (the
    same for all candidates of the task), times what is left over: the noise. It is not
    white: a clock or a neighbour that changes slows many readings in a row, and so a whole run. It
    is kept in the order in which it was recorded, and a run meets a stretch of it.

    Attributes
    ----------
    centre, spread
        ``(n,)``: expectation and standard deviation of each candidate's latency at the mean level
        of the record; NaN where no reading succeeded.
    noise
        One value a reading in recorded order, as wide as if the candidates' latencies were known.
    level
        Standard deviation of the machine's level from occasion to occasion.
    freedom
        Degrees of freedom behind ``level``.
    occasions
        How many occasions the mean level rests on.
    """

    centre: FloatArray
    spread: FloatArray
    noise: FloatArray
    level: float
    freedom: int
    occasions: int

    def draw(self, rng: np.random.Generator) -> PosteriorDraw:
        """Draw latencies of all candidates."""
        unknown = self.spread * rng.standard_normal(len(self.spread))
        return PosteriorDraw(self.centre + unknown, self.noise)

    def levels(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Draw logarithms of the machine's level on a day to come over the record's, ``(n,)``.

        Student's t, since the record's occasions are few; wider by what is not known of their own
        mean.
        """
        reach = self.level * np.sqrt(1 + 1 / self.occasions)
        drawn: FloatArray = reach * rng.standard_t(self.freedom, n)
        return drawn


@dataclass(frozen=True)
class _Split:
    """Readings of one task taken apart: candidates, levels, the rest."""

    mean: FloatArray
    counts: IntArray
    levels: FloatArray
    noise: FloatArray
    variance: float


def readings_of(tables: Mapping[str, RecordedTable]) -> dict[str, Readings]:
    """Estimate the noise of each task; how much a machine's level varies from all its tasks.

    A task without two occasions that hold good readings of half of those candidates that have
    several is left out: its noise is not known.

    Raises
    ------
    DatasetError
        When all of them are left out.
    """
    found = {task_id: _split(table) for task_id, table in tables.items()}
    splits = {task_id: split for task_id, split in found.items() if split is not None}
    if not splits:
        raise DatasetError(
            "too few programs were read twice in any task, so that their noise is not known",
            cure="measure several occasions: 'toolkit collect --occasions 3'",
        )
    out = {}
    for task_id, split in splits.items():
        machine = tables[task_id].task.machine
        alike = [one for key, one in splits.items() if tables[key].task.machine == machine]
        freedom = sum(len(one.levels) - 1 for one in alike)
        level = np.sqrt(sum(float((one.levels**2).sum()) for one in alike) / freedom)
        variance = split.variance / np.maximum(split.counts, 1)
        out[task_id] = Readings(
            centre=split.mean + variance * _slope(split.mean, variance),
            spread=np.where(split.counts > 0, np.sqrt(variance), np.nan),
            noise=split.noise,
            level=float(level),
            freedom=freedom,
            occasions=len(split.levels),
        )
    return out


def _split(table: RecordedTable) -> _Split | None:
    turns = table.occasions
    owner = np.repeat(np.arange(len(table)), turns)
    turn = np.arange(len(owner)) - table.offsets[owner]
    logs = np.full((len(table), int(turns.max())), np.nan)
    logs[owner, turn] = np.log(table.latency_s)
    counts = np.isfinite(logs).sum(axis=1)
    several = counts > 1
    # A level of few readings would be theirs and not the machine's.
    shared = np.isfinite(logs[several]).sum(axis=0) >= max(1, several.sum() / 2)
    if shared.sum() < 2:
        return None
    off = logs - _means(logs)[:, None]
    levels = np.zeros(logs.shape[1])
    levels[shared] = np.nanmedian(off[several][:, shared], axis=0)
    levels[shared] -= levels[shared].mean()
    logs -= levels
    mean = _means(logs)
    left = (logs - mean[:, None])[several]
    known, sizes = np.isfinite(left), counts[several]
    # Readings lie closer to their own mean than to the latency that they are readings of.
    wide = left * np.sqrt(sizes / (sizes - 1))[:, None]
    variance = float((left[known] ** 2).sum() / (sizes - 1).sum())
    place = np.zeros(logs.shape, dtype=np.int64)
    place[owner, turn] = table.order
    in_order = np.argsort(place[several][known])
    return _Split(mean, counts, levels[shared], wide[known][in_order], variance)


def _means(logs: FloatArray) -> FloatArray:
    """Mean of each row's numbers; NaN where it has none."""
    known = np.isfinite(logs)
    counts = known.sum(axis=1)
    sums = np.where(known, logs, 0.0).sum(axis=1)
    means: FloatArray = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def _slope(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Slope of the logarithm of the density of all candidates' latencies, at each of them.

    A candidate that was read as fast is, on average, slower than that: of those around it more are
    slower ones with luck than faster ones without. Its expectation is the reading plus the noise's
    variance times this slope (Tweedie's formula; Efron, "Tweedie's Formula and Selection Bias",
    JASA 2011).
    """
    slope = np.zeros_like(mean)
    known = np.isfinite(mean)
    values, noise = mean[known], float(np.sqrt(np.median(variance[known])))
    if noise == 0.0:
        return slope
    low, high = values.min() - 4 * SMOOTH * noise, values.max() + 4 * SMOOTH * noise
    edges = np.linspace(low, high, _CELLS + 1)
    step = edges[1] - edges[0]
    counts = np.histogram(values, edges)[0].astype(np.float64)
    # Cells coarser than the kernel would be taken for slopes.
    width = max(SMOOTH * noise / step, 3.0)
    density = gaussian_filter1d(counts, width, mode="constant", truncate=8)
    logs = np.log(np.maximum(density, 1e-300))
    slope[known] = np.interp(values, (edges[:-1] + edges[1:]) / 2, np.gradient(logs, step))
    return slope
