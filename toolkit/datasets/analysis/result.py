"""What is said of a log: one typed result, which ``describe`` and the report share.

Every figure has one definition: where its field is. ``None`` is unknown, never zero. Gains are
shares of latency: 0.1 is a tenth less time. Latencies and times are in seconds, lower is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolkit.results import Result

Verdict = Literal["converged", "still improving", "too short"]
NEAR = (10, 5, 1)
"""Per cent above the best recorded at which a run's efforts are counted."""

Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, repr=False)
class Convergence(Result):
    """How far a task is from converged, by its leading run.

    A *run* is what one source recorded of the task, in its order; the leading one has the lowest
    best, the longest of equals. The *best so far* is that of the candidates' values (median over
    all good measurements of the candidate).
    """

    # ``too short``: fewer than 64 evaluations, or nothing good in the first half. ``converged``:
    # the whole space was recorded, or the second half gained less than 1 %. Else ``still
    # improving``.
    verdict: Verdict
    source_id: str | None  # The leading run.
    evaluations: int  # Of the leading run.
    runs: int  # Of the task.
    agreeing_runs: int  # Runs whose best is within 1 % of the task's.
    last_improvement_at: int | None  # Evaluation (from 1) of the best so far's last improvement.
    settled_at: int | None  # Evaluation from which on it was within 1 % of the run's final best.
    since_share: float | None  # Share of the run after ``settled_at``.
    gain_last_quarter: float | None  # Gain of the best so far over the evaluations' last quarter.
    gain_last_half: float | None  # The same over the last half.
    # Gain to expect of as many evaluations again: half of ``gain_last_half``, since doublings
    # gain less and less (``Backtest`` says how that fares on the dataset); 0 when enumerated.
    expected_gain: float | None


@dataclass(frozen=True, repr=False)
class Backtest(Result):
    """How right verdicts would have been: every run of 128 and more evaluations, cut in half."""

    runs: int  # Runs with a verdict at half their length.
    called_converged: int  # How many were called converged there.
    gained_after: int  # How many of these gained 1 % or more after all.
    called_improving: int  # How many were called still improving there.
    improved_after: int  # How many of these gained 1 % or more.
    expected_gain: float | None  # Mean over the runs of what was expected at half the length.
    gain: float | None  # Mean over the runs of what came.


@dataclass(frozen=True, repr=False)
class StateTime(Result):
    """Measurements of one state and what they cost.

    ``seconds`` sums the records whose time is known (``timed``): recorded elapsed time, else the
    gap of up to 60 s to the timestamp before in the same source. ``seconds_share`` is of all
    known seconds; both are ``None`` where no record of the state has a time.
    """

    state: str
    records: int
    share: float
    timed: int
    seconds: float | None
    seconds_share: float | None


@dataclass(frozen=True, repr=False)
class Spread(Result):
    """Median and 90th percentile of relative spreads (sample standard deviation over mean).

    ``groups`` is how many groups of two and more readings there were; with none the rest is
    ``None``.
    """

    groups: int
    median: float | None
    p90: float | None


@dataclass(frozen=True, repr=False)
class Noise(Result):
    """How repeats scatter: ``within`` one record's run times; ``between`` a candidate's records."""

    within: Spread
    between: Spread


@dataclass(frozen=True, repr=False)
class Speeds(Result):
    """Whether runs of a task read the same candidates alike, or their machine had two speeds.

    Of runs that share eight good candidates with another. A slower one reads them at least 5 %
    slower than the fastest such run, beyond four standard errors.
    """

    runs: int
    slower: int
    tasks: int
    slower_tasks: int
    slowdown: float | None  # Median over the slower runs: 1.2 is a fifth more time.
    corrected: bool  # Whether other figures are of latencies divided by their run's slowdown.


@dataclass(frozen=True, repr=False)
class KnobEffect(Result):
    """How much one decision moves log latency in one task and sketch."""

    knob: str
    kind: str
    # ``None``: the knob's value as a whole. Else the one factor of a tile (0 is outermost) that
    # explains most, where whole values are too many (fewer than five candidates each): a lower
    # bound for the knob.
    part: int | None
    levels: int  # Distinct values.
    candidates: int  # Good candidates.
    # Omega squared of a one-way analysis of variance (Hays 1963): the share of the variance of
    # log latency that the decision explains by itself, corrected for chance; 0 at least.
    effect: float
    best_level: str  # The value with the lowest mean log latency.
    # Its gain over the median level. Means are shrunk towards the grand mean by the noise of
    # each (random effects, method of moments), so that a rare lucky level counts little.
    gain: float


@dataclass(frozen=True, repr=False)
class SketchKnob(Result):
    """One decision over all tasks that share a sketch: medians over the tasks.

    ``workload`` is the name that most of them have; ``top_in`` counts the tasks where no other
    decision of the sketch has a larger effect.
    """

    sketch_id: str
    workload: str
    knob: str
    kind: str
    tasks: int
    top_in: int
    effect: float
    gain: float


@dataclass(frozen=True, repr=False)
class Reached(Result):
    """Effort until a run measured a candidate within ``percent`` of the task's best recorded.

    The best is that of all tuners. Medians over tasks (a task's own is that over the tuner's runs
    of it), with 95 % intervals from order statistics; a run that does not get there counts as
    infinite, and an infinite median is ``None``. ``reached_share`` is of runs.
    """

    percent: int
    reached_share: float
    evaluations: float | None
    evaluations_interval: Bounds | None
    seconds: float | None


@dataclass(frozen=True, repr=False)
class Tuner(Result):
    """What one tuner reached, and when.

    ``evaluations`` is the median length of its runs; ``final_ratio`` the median over tasks of
    its best over the best recorded by any tuner (1 at best), ``final_ratio_worst`` the largest.
    ``profile`` has pairs (evaluations, share of runs within 1 % of that best by then).
    ``slowdown`` is the median over its runs (``Speeds``), as recorded.
    """

    tuner: str
    runs: int
    tasks: int
    evaluations: float
    failed_share: float
    final_ratio: float | None
    final_ratio_interval: Bounds | None
    final_ratio_worst: float | None
    reached: tuple[Reached, ...]
    profile: tuple[tuple[int, float], ...]
    slowdown: float | None


@dataclass(frozen=True, repr=False)
class Tuners(Result):
    """The tuners of a log side by side."""

    # What told them apart: ``label tuner`` (of the sources, see ``--path-rule``) or ``folder N
    # above the file``.
    by: str
    # Tasks compared: those that every tuner ran. Where there are none each is judged on those
    # that it shares with another (``common`` is false).
    tasks: int
    common: bool
    tuners: tuple[Tuner, ...]


@dataclass(frozen=True, repr=False)
class TaskAnalysis(Result):
    """What is said of one task."""

    task_id: str
    best_s: float | None  # Lowest value of a candidate: each the median over good measurements.
    occasions: int  # The most good measurements that a candidate has.
    weight: float | None  # How often the dataset's networks run the task, where labels tell.
    # Share of the sum over tasks of best latency times weight; where no label gives weights all
    # weigh 1, where some tasks have none these are left out (``None``).
    latency_share: float | None
    # ``latency_share`` times ``convergence.expected_gain``: what as many evaluations again would
    # take off the whole sum.
    gain_to_expect: float | None
    seconds: float | None  # Known measuring time.
    failing_s: float | None  # That of failures.
    timed_share: float  # Share of records whose time is known.
    time_share: float | None  # Share of all known measuring time.
    convergence: Convergence
    noise: Noise
    # Strongest decisions first, at most five: those of the most recorded sketch, and ``sketch``
    # itself where there are several.
    knobs: tuple[KnobEffect, ...]


@dataclass(frozen=True, repr=False)
class Analysis(Result):
    """What is said of a whole dataset; ``tasks`` by id.

    ``seconds`` is all known measuring time, ``timed_share`` the share of records it is known of.
    ``verdicts`` counts tasks. ``tuners`` is ``None`` where no task was run by two of them,
    ``speeds`` where no two runs share candidates.
    """

    tasks: dict[str, TaskAnalysis]
    verdicts: dict[str, int]
    backtest: Backtest
    states: tuple[StateTime, ...]
    seconds: float | None
    timed_share: float
    noise: Noise
    speeds: Speeds | None
    knobs: tuple[SketchKnob, ...]
    tuners: Tuners | None
