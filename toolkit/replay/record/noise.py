"""Separates latencies from the noise of their readings, for any shape of the noise.

In logarithms a reading is a latency plus noise. Noise of measurements is seldom normal: most
readings agree to a percent or two, some are a tenth slower, and a machine with two clock rates
gives two groups. A mean and a standard deviation then mislead twice: one slow reading makes the
candidate's other readings look lucky, and all candidates count as equally uncertain.

So no shape is assumed. The distribution of the noise and that of the latencies are estimated
in turn from all readings of a task: given both, Bayes' rule says where each candidate's latency may
lie; what is left over is the noise. This is the EM algorithm for a deconvolution with an unknown
error distribution, which several readings of each candidate identify (Kotlarski 1967), smoothed in
every round so that it does not end in spikes (Silverman, Jones, Wilson and Nychka, "A Smoothed EM
Approach to Indirect Estimation Problems", JRSS B 1990).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from toolkit.search.moves.knobs import FloatArray, IntArray

PROBABILITIES: FloatArray = np.concatenate(
    [[0.001, 0.005, 0.02], np.linspace(0.05, 0.95, 19), [0.98, 0.995, 0.999]]
)
"""Quantiles at which a candidate's latency is given."""

# The noise's density lives on cells of asinh(noise / (CORE * scale)): fine where most readings lie,
# coarse in the tails, which begin at CORE scales.
CORE, CELL, REACH = 2.0, 0.02, 7.0
AXIS: FloatArray = np.arange(-REACH, REACH + CELL / 2, CELL)

# Widths of the kernels: for the noise on that axis with TYPICAL readings (more readings, less
# smoothing), for the latencies in scales over the root of a candidate's number of readings. The
# values are not critical: half or twice either changes the ranked probability score of held-out
# occasions, on 41 tasks of several machines, by less than 3 %. Wider ones give too wide a posterior
# if the noise is normal.
NOISE_WIDTH, TYPICAL, LATENCY_WIDTH = 0.2, 500, 1.5
# Prior on the noise: ASSUMED readings of a Student's t with two degrees of freedom.
ASSUMED, FREEDOM = 10.0, 2.0

ROUNDS = 10
# The shapes are estimated from about ENOUGH readings, evenly from fast and slow candidates, at most
# EACH per candidate.
ENOUGH, EACH = 5_000, 8
# A posterior's grid is fine around ANCHORS readings of a candidate, with POINTS points each.
ANCHORS, POINTS = 5, 61
_PRIOR_CELLS = 8192
_AT_ONCE = 10_000


def latency_quantiles(readings: FloatArray) -> FloatArray:
    """Quantiles of each candidate's latency, given its readings and those of all others.

    ``readings``, ``(n, occasions)``, are logarithms of seconds without the machine's level; NaN
    for none. Some candidates must have several. Returns quantiles of the posterior of each
    logarithm, ``(n, len(PROBABILITIES))``; NaN for a candidate without readings.
    """
    out = np.full((len(readings), len(PROBABILITIES)), np.nan)
    known = np.isfinite(readings).any(axis=1)
    # Readings first, in order: no row has gaps then.
    order = np.argsort(~np.isfinite(readings[known]), axis=1, kind="stable")
    packed = np.take_along_axis(readings[known], order, axis=1)
    scale = _scale(packed)
    if scale == 0.0:
        out[known] = packed[:, :1]
        return out
    shapes = _estimate(packed[:, :EACH], scale)
    parts = np.array_split(packed, 1 + packed.size // _AT_ONCE)
    out[known] = np.concatenate([_Grid.around(p, scale).quantiles(shapes) for p in parts if len(p)])
    return out


def _scale(packed: FloatArray) -> float:
    """Standard deviation of the bulk of the noise, from consecutive readings of a candidate."""
    apart = np.abs(np.diff(packed, axis=1))
    apart = apart[np.isfinite(apart)]
    # For a normal distribution, half of the differences are below 0.954 standard deviations, and
    # their mean is 1.128 (used when a coarse clock makes most of them 0).
    return float(np.median(apart) / 0.954) or float(apart.mean() / 1.128)


@dataclass(frozen=True)
class _Shapes:
    """Logarithms of two densities: of the noise on ``AXIS``, of the latencies on even cells."""

    noise: FloatArray
    latency: FloatArray
    lowest: float
    step: float


@dataclass(frozen=True)
class _Grid:
    """Points for the possible latencies of candidates, and the noise that each point implies."""

    points: FloatArray  # (n, p): logarithms
    widths: FloatArray  # (n, p): width of the line around each
    starts: IntArray  # (n,): first reading of each candidate
    place: FloatArray  # (readings, p): where on AXIS the noise of each would be, in cells

    @classmethod
    def around(cls, packed: FloatArray, scale: float) -> _Grid:
        """Points around the readings of each candidate, dense near them."""
        known = np.isfinite(packed)
        counts = known.sum(axis=1)
        share = np.linspace(0, 1, ANCHORS)
        chosen = np.rint(share * (counts - 1)[:, None]).astype(np.int64)
        anchors = np.take_along_axis(np.sort(packed, axis=1), chosen, axis=1)
        around = scale * np.sinh(np.linspace(-4.5, 4.5, POINTS))
        points = np.sort((anchors[:, :, None] + around).reshape(len(packed), -1), axis=1)
        owner = np.repeat(np.arange(len(packed)), counts)
        noise = packed[known][:, None] - points[owner]
        return cls(
            points=points,
            widths=np.gradient(points, axis=1),
            starts=np.r_[0, np.cumsum(counts)[:-1]],
            place=(np.arcsinh(noise / (CORE * scale)) + REACH) / CELL,
        )

    def posterior(self, shapes: _Shapes) -> FloatArray:
        """Probability of each point, ``(n, p)``."""
        logs = np.add.reduceat(_at(shapes.noise, self.place), self.starts, axis=0)
        logs += _at(shapes.latency, (self.points - shapes.lowest) / shapes.step)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True)) * self.widths
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def quantiles(self, shapes: _Shapes) -> FloatArray:
        """Quantiles of each posterior at ``PROBABILITIES``."""
        probability = self.posterior(shapes)
        below = np.cumsum(probability, axis=1) - probability / 2
        rows = zip(below, self.points, strict=True)
        return np.array([np.interp(PROBABILITIES, row, points) for row, points in rows])


def _cells(place: FloatArray, cells: int) -> tuple[IntArray, FloatArray]:
    """Cell before each place, and how far it lies towards the next."""
    place = np.clip(place, 0, cells - 1.001)
    cell = place.astype(np.int64)
    return cell, place - cell


def _at(values: FloatArray, place: FloatArray) -> FloatArray:
    """Look values up between cells."""
    cell, between = _cells(place, len(values))
    return np.asarray(values[cell] * (1 - between) + values[cell + 1] * between)


def _counted(place: FloatArray, weights: FloatArray, cells: int) -> FloatArray:
    """Sum of the weights in each cell; a weight between two cells is shared."""
    cell, between = _cells(place.ravel(), cells)
    before = np.bincount(cell, weights.ravel() * (1 - between), cells)
    return np.asarray(before + np.bincount(cell + 1, weights.ravel() * between, cells))


def _estimate(packed: FloatArray, scale: float) -> _Shapes:
    """Estimate both densities in turn."""
    middles = np.nanmedian(packed, axis=1)
    several = np.flatnonzero(np.isfinite(packed[:, 1]))
    ranked = several[np.argsort(middles[several], kind="stable")]
    wanted = max(2, int(len(ranked) * min(1.0, ENOUGH / np.isfinite(packed[ranked]).sum())))
    used = ranked[np.linspace(0, len(ranked) - 1, min(wanted, len(ranked))).astype(np.int64)]
    grid = _Grid.around(packed[used], scale)
    readings = len(grid.place)
    lowest, highest = middles.min() - 20 * scale, middles.max() + 20 * scale
    step = float(highest - lowest) / (_PRIOR_CELLS - 1)
    owner = np.repeat(np.arange(len(used)), np.diff(np.r_[grid.starts, readings]))

    def smoothed(counted: FloatArray, width: float) -> FloatArray:
        from scipy.ndimage import gaussian_filter1d  # only where noise is read

        return np.asarray(gaussian_filter1d(counted, width, mode="constant", truncate=6))

    def latency(places: FloatArray, weights: FloatArray) -> FloatArray:
        counted = _counted((places - lowest) / step, weights, _PRIOR_CELLS)
        # With a kernel narrower than the cells, the cells would look like structure.
        width = max(LATENCY_WIDTH * scale / np.sqrt(readings / len(used)) / step, 3.0)
        smooth = smoothed(counted, width)
        # Plus one candidate spread over all cells.
        return np.asarray(np.log(smooth / smooth.sum() * len(used) + 1 / _PRIOR_CELLS))

    stretch = np.cosh(AXIS)
    assumed = (1 + (CORE * np.sinh(AXIS)) ** 2 / FREEDOM) ** (-(FREEDOM + 1) / 2) * stretch
    assumed /= assumed.sum()
    width = NOISE_WIDTH * (TYPICAL / readings) ** 0.2 / CELL
    start = latency(middles[used], np.ones(len(used)))
    shapes = _Shapes(np.log(assumed / stretch), start, float(lowest), step)
    for _ in range(ROUNDS):
        probability = grid.posterior(shapes)
        noise = smoothed(_counted(grid.place, probability[owner], len(AXIS)), width)
        noise += ASSUMED * assumed
        noise = np.log(noise / noise.sum() / stretch)
        shapes = replace(shapes, noise=noise, latency=latency(grid.points, probability))
    return shapes
