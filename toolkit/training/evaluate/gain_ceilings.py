"""Ceilings of ``gain_share``: what noise and incomplete logs leave for any direction model.

The oracle of ``gain_share`` knows what was measured. A model cannot know two parts of that:

- *Noise.* Another measurement of the same neighbours would differ. ``gain_share_ceiling`` is the
  share of a predictor that knows another measurement of every neighbour.
- *The draw.* An incomplete log holds one or two of the values that a direction can lead to. A
  predictor that does not know which ones ("blind") can at best know the direction's mean over all
  values. ``gain_share_told_half`` is measured: one random half of the recorded neighbours chooses
  the direction, and the gain is that of the other half. ``gain_share_blind_ceiling`` is an
  estimate for the best blind predictor, from a model of two normal variances (below).

The model of the blind ceiling: the means of a candidate's directions have variance rho s^2, and the
values inside a direction have variance f s^2. rho is one number per task, f one per knob of a task,
s one per candidate. If n of a direction's N values were recorded, the error of its recorded mean
has variance f s^2 (1/n - 1/N): zero where the space was recorded completely. rho follows from the
analysis of variance within candidates (between directions against inside them). The best blind
predictor gets the largest of the means. Its expectation, given the recorded means, is drawn from
their normal posterior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Sketch
from toolkit.training.arrays import Bools, Floats, Ints
from toolkit.training.evaluate.bootstrap import named, ratio_interval
from toolkit.training.table.mutation_labels import LabelledGroup
from toolkit.training.table.neighbours import ANY, count_values, direction_gains, other_decisions

DRAWS = 32
"""Posterior draws per candidate; a mean over many candidates needs few."""


class GainSpread(NamedTuple):
    """Recorded gains of candidates with two or more recorded directions.

    Arrays are ``(n, knobs)``, NaN where a direction has no recorded neighbour. ``gain`` is the mean
    over the recorded neighbours, ``half`` and ``other`` are the means over two random halves of
    them, ``within`` is their variance inside a direction (NaN with fewer than two). ``shrink`` is
    ``1/n - 1/N``: the variance of ``gain`` about the mean over all values, in units of ``within``.
    """

    gain: Floats
    shrink: Floats
    within: Floats
    half: Floats
    other: Floats


def neighbour_spread(label: LabelledGroup, rng: np.random.Generator) -> GainSpread:
    """Return the spread of a group's recorded neighbours; directions are knobs."""
    group = label.group
    gain, count = label.gains.gain[ANY], label.gains.count[ANY].astype(np.float64)
    rows = np.flatnonzero(np.isfinite(gain).sum(axis=1) >= 2)
    within, half, other = (np.full(gain.shape, np.nan) for _ in range(3))
    good = np.flatnonzero(np.isfinite(label.latency_s))
    if len(rows):
        speed = -np.log(label.latency_s[good])
        for k, rest in enumerate(other_decisions(group.sketch, group.decisions[good])):
            within[good, k], half[good, k], other[good, k] = _halves(rest, speed, rng)
    legal = _legal(group.sketch, group.decisions[rows])
    recorded = np.maximum(count[rows], 1.0)
    # 1/n - 1/N, written as a product, so that no term is infinite where N is.
    shrink = (1.0 - recorded / np.maximum(legal, recorded)) / recorded
    shrink[~np.isfinite(gain[rows])] = np.nan
    return GainSpread(gain[rows], shrink, within[rows], half[rows], other[rows])


def _halves(
    rest: NDArray[np.uint64], speed: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Variance of each candidate's neighbours in one knob, and gains to two random halves."""
    _, clique, size = np.unique(rest, return_inverse=True, return_counts=True)
    clique = clique.reshape(-1)
    # Centred first: variances are differences of squares.
    centred = speed - (np.bincount(clique, speed) / size)[clique]
    number = size[clique] - 1.0
    total = -centred
    squares = np.bincount(clique, centred**2)[clique] - centred**2
    first = rng.random(len(speed)) < 0.5
    in_first = np.bincount(clique, first)[clique] - first
    sum_first = np.bincount(clique, first * centred)[clique] - first * centred
    in_second = number - in_first
    with np.errstate(divide="ignore", invalid="ignore"):
        within = np.maximum(squares - total**2 / number, 0.0) / (number - 1)
        half = sum_first / in_first - centred
        other = (total - sum_first) / in_second - centred
    within[number < 2] = np.nan
    half[in_first < 1] = np.nan
    other[in_second < 1] = np.nan
    return within, half, other


def _legal(sketch: Sketch, decisions: Ints) -> Floats:
    """Number of other values that each knob of each candidate can take; infinite where unknown."""
    result = np.full((len(decisions), len(sketch.knobs)), np.inf)
    for k, knob in enumerate(sketch.knobs):
        own = decisions[:, knob.offset : knob.offset + knob.width]
        distinct, place = np.unique(own, axis=0, return_inverse=True)
        counts = np.array([count_values(knob, value) - 1.0 for value in distinct])
        if len(counts):
            result[:, k] = counts[place.reshape(-1)]
    return result


def stack_spreads(parts: Sequence[GainSpread]) -> GainSpread:
    """Stack the groups of a task; missing knobs are NaN."""
    width = max(part.gain.shape[1] for part in parts)

    def padded(block: Floats) -> Floats:
        return np.pad(block, ((0, 0), (0, width - block.shape[1])), constant_values=np.nan)

    return GainSpread(*(np.concatenate([*map(padded, each)]) for each in zip(*parts, strict=True)))


def blind_gain(spread: GainSpread, rng: np.random.Generator) -> Floats:
    """Expected gain of the best blind predictor for each candidate of one task (see the module)."""
    known = np.isfinite(spread.gain)
    gain = np.where(known, spread.gain, 0.0)
    factor = _knob_factors(spread.within)
    error = np.where(known, spread.shrink * factor, 0.0)
    directions = known.sum(axis=1)
    mean = gain.sum(axis=1) / directions
    excess = np.where(known, gain - mean[:, None], 0.0)
    between = (excess**2).sum(axis=1) / (directions - 1)
    mean_error = error.sum(axis=1) / directions
    scaled = spread.within / factor
    number = np.isfinite(scaled).sum(axis=1)
    inner = np.nansum(scaled, axis=1)
    inside, usable = inner / np.maximum(number, 1), number > 0
    below = inside[usable].sum()
    if below <= 0:
        # Nothing differs inside a direction, or no direction has two neighbours.
        return np.asarray(_masked(gain, known).max(axis=1))
    rho = max(float((between - inside * mean_error)[usable].sum() / below), 0.0)
    expected = rho + mean_error
    # Both kinds of difference estimate a candidate's scale, each weighted by its number.
    outside = np.where(expected > 0, between / np.maximum(expected, 1e-12), 0.0) * (directions - 1)
    scale = ((outside + inner) / (directions - 1 + number))[:, None]
    kept = np.where(error > 0, rho / np.maximum(rho + error, 1e-12), 1.0)
    precision = np.where(known, 1 / np.maximum(rho + error, 1e-12), 0.0)
    centre = ((precision * gain).sum(axis=1) / precision.sum(axis=1))[:, None]
    posterior = centre + kept * (gain - centre)
    deviation = np.sqrt(kept * error * scale)
    best = np.zeros(len(posterior))
    for _ in range(DRAWS):
        drawn = posterior + deviation * rng.normal(size=posterior.shape)
        best += _masked(drawn, known).max(axis=1)
    return np.asarray(best / DRAWS)


def _knob_factors(within: Floats) -> Floats:
    """Variance inside each knob's directions over the mean of all knobs; 1 where it is unknown."""
    has = np.isfinite(within)
    overall = within[has].mean() if has.any() else 0.0
    if overall <= 0:
        return np.ones(within.shape[1])
    sums, number = np.nansum(within, axis=0), has.sum(axis=0)
    found = np.where(number > 0, sums / np.maximum(number, 1) / overall, 1.0)
    return np.asarray(np.maximum(found, 1e-3))


def told_gain(label: LabelledGroup, shifts: Floats, rng: np.random.Generator) -> float:
    """Return the summed gain of a predictor that knows another measurement.

    ``shifts`` are differences of log latency between two occasions of one candidate.
    """
    gain = label.gains.gain[ANY]
    known = np.isfinite(gain)
    rows = np.flatnonzero(known.sum(axis=1) >= 2)
    if len(rows) == 0 or not len(shifts):
        return 0.0
    group = label.group
    drawn = rng.choice(shifts, len(group)) * rng.choice((-1.0, 1.0), len(group))
    latency = label.latency_s * np.exp(drawn)
    told = direction_gains(group.sketch, group.decisions, latency).gain[ANY]
    picked = _masked(told[rows], known[rows]).argmax(axis=1)
    return float(gain[rows, picked].sum())


def gain_ceilings(
    by_task: Mapping[str, Sequence[LabelledGroup]], shifts: Floats, *, seed: int = 0
) -> dict[str, Any]:
    """Ceilings at the level ``knob`` over the judged tasks, each with its interval by task.

    ``gain_share_ceiling`` is ``None`` where nothing was measured twice.
    """
    rows: list[tuple[float, ...]] = []
    for task_id, labels in sorted(by_task.items()):
        rng = np.random.default_rng([seed, int(task_id[:8], 16)])
        told = sum(told_gain(label, shifts, rng) for label in labels)
        spread = stack_spreads([neighbour_spread(label, rng) for label in labels])
        if len(spread.gain) == 0:
            continue
        oracle = _masked(spread.gain, np.isfinite(spread.gain)).max(axis=1).sum()
        both = np.isfinite(spread.half) & np.isfinite(spread.other)
        own = np.flatnonzero(both.sum(axis=1) >= 2)
        picked = _masked(spread.half[own], both[own]).argmax(axis=1)
        reached = spread.other[own, picked].sum()
        highest = _masked(spread.gain[own], both[own]).max(axis=1).sum()
        rows.append((told, oracle, blind_gain(spread, rng).sum(), reached, highest))
    told, oracle, blind, half, half_oracle = np.array(rows).reshape(-1, 5).T
    result: dict[str, Any] = {}
    for key, above, below in (
        ("gain_share_ceiling", told if len(shifts) else None, oracle),
        ("gain_share_blind_ceiling", blind, oracle),
        ("gain_share_told_half", half, half_oracle),
    ):
        if above is None or not below.any():
            result[key] = None
        else:
            result |= named(key, ratio_interval(above, below, seed=seed))
    return result


def _masked(values: Floats, known: Bools) -> Floats:
    return np.where(known, values, -np.inf)
