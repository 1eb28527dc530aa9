"""The noise of a record with several readings per candidate, and draws of future readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from toolkit.errors import DatasetError
from toolkit.replay.record.noise import PROBABILITIES, latency_quantiles
from toolkit.replay.record.table import RecordedTable
from toolkit.search.moves.knobs import FloatArray, IntArray

# Rounds of median polish, levels and candidates in turn; three or four are enough.
_POLISHES = 5

# Prior on a machine's level: as if two occasions had been 5 % off. Occasions of a record are
# minutes apart; of three virtual machines one was 13 % away from its record an hour later and one
# 5 % ten minutes later, although the occasions in both records agreed better.
PRIOR_LEVEL, PRIOR_FREEDOM = 0.05, 2


@dataclass(frozen=True)
class PosteriorDraw:
    """One posterior draw of the latencies of all candidates, given the record."""

    log_latency: FloatArray  # (n,): of seconds; NaN where no reading ever succeeded
    noise: FloatArray  # log differences of readings from latencies, in recorded order

    def read(self, numbers: IntArray, places: IntArray) -> FloatArray:
        """Return a reading in seconds of each candidate, given by number.

        ``places`` are positions in the noise, which repeats after its end.
        """
        slower = self.noise[places % len(self.noise)]
        return np.asarray(np.exp(self.log_latency[numbers] + slower))


@dataclass(frozen=True)
class Readings:
    """Latencies and noise of one task's readings, in logarithms of seconds.

    A reading is taken to be a candidate's latency, times the machine's level on that occasion (the
    same for all candidates of the task), times what is left over: the noise
    (``toolkit.replay.record.noise``). The noise is not white: a change of the clock or of another
    load slows many readings in a row, and so a whole run. It is kept in recorded order, and a run
    uses a stretch of it.
    """

    # (n, len(PROBABILITIES)): quantiles of what each candidate's latency may be at the mean level
    # of the record; NaN where no reading succeeded.
    latency: FloatArray
    seen: FloatArray  # readings at the mean level, of candidates that have several, as recorded
    owner: IntArray  # number of the candidate of each
    # Standard deviation of the machine's level from occasion to occasion (with PRIOR_LEVEL, which
    # many occasions outweigh), and the degrees of freedom behind it.
    level: float
    freedom: int
    occasions: int  # how many occasions the mean level rests on

    def draw(self, rng: np.random.Generator) -> PosteriorDraw:
        """Draw latencies of all candidates, and with them the noise that their readings had."""
        n, last = len(self.latency), len(PROBABILITIES) - 1
        place = np.interp(rng.random(n), PROBABILITIES, np.arange(last + 1))
        below = np.minimum(place.astype(np.int64), last - 1)
        low, high = (self.latency[np.arange(n), end] for end in (below, below + 1))
        drawn = low + (place - below) * (high - low)
        # Candidates are drawn independently, but readings in a row were slowed together: the order
        # of the noise is therefore taken from the median latencies.
        middle = self.latency[self.owner, last // 2]
        noise = np.empty(len(self.seen))
        noise[np.argsort(self.seen - middle)] = np.sort(self.seen - drawn[self.owner])
        return PosteriorDraw(drawn, noise)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise."""
        return float(self.draw(np.random.default_rng(0)).noise.std())

    def levels(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Draw log ratios of the machine's level on another day to the record's, ``(n,)``.

        Student's t, since the record has few occasions; widened by the uncertainty of their mean.
        """
        reach = self.level * np.sqrt(1 + 1 / self.occasions)
        return np.asarray(reach * rng.standard_t(self.freedom, n))


def readings_of(tables: Mapping[str, RecordedTable]) -> dict[str, Readings]:
    """Estimate the noise of each task, and the spread of a machine's level from all its tasks.

    A task is kept if two occasions each have good readings of at least half of the candidates
    with several readings. Otherwise its noise is unknown. ``DatasetError`` if none is kept.
    """
    found = {task_id: _levelled(table) for task_id, table in tables.items()}
    known = {task_id: one for task_id, one in found.items() if one is not None}
    if not known:
        raise DatasetError(
            "the noise is unknown: no task has enough programs that were read twice",
            cure="measure on several occasions: 'toolkit collect --occasions 3'",
        )
    out = {}
    for task_id, (logs, own, seen, owner) in known.items():
        machine = tables[task_id].task.machine
        alike = [one[1] for key, one in known.items() if tables[key].task.machine == machine]
        freedom = PRIOR_FREEDOM + sum(len(levels) - 1 for levels in alike)
        squares = PRIOR_FREEDOM * PRIOR_LEVEL**2 + sum((levels**2).sum() for levels in alike)
        level = float(np.sqrt(squares / freedom))
        quantiles = latency_quantiles(logs)
        out[task_id] = Readings(quantiles, seen, owner, level, freedom, occasions=len(own))
    return out


def _levelled(table: RecordedTable) -> tuple[FloatArray, FloatArray, FloatArray, IntArray] | None:
    """Remove the machine's level of each occasion from the readings; ``None`` if it is unknown.

    Returns all readings, ``(n, occasions)``, the levels, and ``seen`` and ``owner`` of
    ``Readings``.
    """
    owner = table.owner
    turn = np.arange(len(owner)) - table.offsets[owner]
    logs = np.full((len(table), int(turn.max()) + 1), np.nan)
    logs[owner, turn] = np.log(table.latency_s)
    several = np.isfinite(logs).sum(axis=1) > 1
    # A level from few readings would be the level of these programs, not of the machine.
    shared = np.isfinite(logs[several]).sum(axis=0) >= max(1, several.sum() / 2)
    if shared.sum() < 2:
        return None
    levels = np.zeros(logs.shape[1])
    for _ in range(_POLISHES):
        rest = (logs - levels)[several]
        off = np.nanmedian((rest - np.nanmedian(rest, axis=1)[:, None])[:, shared], axis=0)
        levels[shared] += off - off.mean()
    logs -= levels
    counted = np.flatnonzero(several[owner] & np.isfinite(table.latency_s))
    counted = counted[np.argsort(table.order[counted], kind="stable")]
    return logs, levels[shared], logs[owner[counted], turn[counted]], owner[counted]
