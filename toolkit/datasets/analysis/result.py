"""The figures of a log: one typed result, which ``describe`` and the report share.

Every figure is defined once, at its field. ``None`` means unknown, never zero. Gains are shares
of latency: 0.1 is a tenth less time. Latencies and times are in seconds, lower is better.
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
    """How far a task is from convergence, judged by its leading run.

    A *run* is one source's records of the task, in order. The leading run has the lowest best;
    ties go to the longest. A candidate's value is the median over all its good measurements. The
    *best so far* is the lowest value up to then.
    """

    # ``too short``: fewer than 64 evaluations, or nothing good in the first half. ``converged``:
    # the whole space was recorded, or the second half gained less than 1 %. Else ``still
    # improving``.
    verdict: Verdict
    source_id: str | None  # The leading run.
    evaluations: int  # Evaluations of the leading run.
    runs: int  # Runs of the task.
    agreeing_runs: int  # Runs whose best is within 1 % of the task's.
    last_improvement_at: int | None  # Evaluation (from 1) at which the best so far last improved.
    # First evaluation with a best so far within 1 % of the run's final best.
    settled_at: int | None
    since_share: float | None  # Share of the run after ``settled_at``.
    gain_last_quarter: float | None  # Gain of the best so far over the run's last quarter.
    gain_last_half: float | None  # The same over the last half.
    # Gain to expect from doubling the run: half of ``gain_last_half``, since doublings gain less
    # and less. ``Backtest`` tests this estimate. It is 0 for enumerated tasks.
    expected_gain: float | None


@dataclass(frozen=True, repr=False)
class Backtest(Result):
    """How often verdicts at half of a run were right, over runs of 128 or more evaluations."""

    runs: int  # Runs with a verdict at half their length.
    called_converged: int  # How many were called converged there.
    gained_after: int  # How many of these then gained 1 % or more.
    called_improving: int  # How many were called still improving there.
    improved_after: int  # How many of these then gained 1 % or more.
    expected_gain: float | None  # Mean over the runs of the gain expected at half their length.
    gain: float | None  # Mean over the runs of the actual gain.


@dataclass(frozen=True, repr=False)
class StateTime(Result):
    """Measurements of one state and what they cost.

    ``seconds`` sums the times of the ``timed`` records: the recorded elapsed time, else the gap of
    up to 60 s to the source's previous timestamp. ``seconds_share`` is its share of all known
    seconds. Both are ``None`` where no record of the state has a time.
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

    ``groups`` counts groups of two or more readings. If it is 0, the rest is ``None``.
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
    """Whether runs of a task agree on shared candidates, or their machine had two speeds.

    Only runs that share eight good candidates with others count. A slower run reads them at least
    5 % slower than the fastest such run, beyond four standard errors.
    """

    runs: int
    slower: int
    tasks: int
    slower_tasks: int
    slowdown: float | None  # Median over the slower runs: 1.2 is a fifth more time.
    corrected: bool  # Whether other figures use latencies divided by their run's slowdown.


@dataclass(frozen=True, repr=False)
class KnobEffect(Result):
    """How much one decision moves log latency in one task and sketch."""

    knob: str
    kind: str
    # ``None``: the knob's value as a whole. If whole values have fewer than five candidates each:
    # the factor of a tile (0 is outermost) that explains most, a lower bound for the knob.
    part: int | None
    levels: int  # Distinct values.
    candidates: int  # Good candidates.
    # Omega squared of a one-way analysis of variance (Hays 1963): the share of the variance of
    # log latency that the decision explains by itself, corrected for chance; at least 0.
    effect: float
    best_level: str  # The value with the lowest mean log latency.
    # Gain of ``best_level`` over the median level. Means are shrunk towards the grand mean by the
    # noise of each (random effects, method of moments), so a rare lucky level counts little.
    gain: float


@dataclass(frozen=True, repr=False)
class SketchKnob(Result):
    """One decision over all tasks that share a sketch: medians over the tasks.

    ``workload`` is the tasks' most common name. ``top_in`` counts the tasks where no other
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
    """Effort until a run measured a candidate within ``percent`` of the task's recorded best.

    The best is that of all tuners. A task's effort is the median over the tuner's runs. Figures are
    medians over tasks, with 95 % intervals from order statistics. A run that does not get there
    counts as infinite; an infinite median is ``None``. ``reached_share`` is a share of runs.
    """

    percent: int
    reached_share: float
    evaluations: float | None
    evaluations_interval: Bounds | None
    seconds: float | None


@dataclass(frozen=True, repr=False)
class Tuner(Result):
    """What one tuner reached, and when.

    ``evaluations`` is the median length of its runs. ``final_ratio`` is the median over tasks of
    its best divided by the best of all tuners (at least 1). ``final_ratio_worst`` is the largest
    ratio. ``profile`` has pairs: evaluations, share of runs within 1 % of that best by then.
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

    # What distinguishes the tuners: ``label tuner`` (of the sources, see ``--path-rule``) or
    # ``folder N above the file``.
    by: str
    # Tasks compared: those that every tuner ran. If there are none, ``common`` is false, and each
    # tuner is judged on tasks that it shares with another.
    tasks: int
    common: bool
    tuners: tuple[Tuner, ...]


@dataclass(frozen=True, repr=False)
class TaskAnalysis(Result):
    """The figures of one task."""

    task_id: str
    best_s: float | None  # Value of the best candidate: the median over its good measurements.
    occasions: int  # Largest number of good measurements of a candidate.
    weight: float | None  # How often the dataset's networks run the task, according to labels.
    # Best latency times weight, as a share of the sum over tasks. If no label gives weights, all
    # tasks weigh 1. If only some tasks have weights, the others are left out (``None``).
    latency_share: float | None
    # ``latency_share`` times ``convergence.expected_gain``: what doubling the run should save of
    # the whole sum.
    gain_to_expect: float | None
    seconds: float | None  # Known measuring time.
    failing_s: float | None  # Known measuring time of failures.
    timed_share: float  # Share of records whose time is known.
    time_share: float | None  # Share of all known measuring time.
    convergence: Convergence
    noise: Noise
    # At most five decisions, strongest first: those of the sketch with most candidates, and
    # ``sketch`` itself where there are several.
    knobs: tuple[KnobEffect, ...]


@dataclass(frozen=True, repr=False)
class Analysis(Result):
    """The figures of a whole dataset; ``tasks`` by id.

    ``seconds`` is all known measuring time. ``timed_share`` is the share of records with a known
    time. ``verdicts`` counts tasks. ``tuners`` is ``None`` where no two tuners ran the same task.
    ``speeds`` is ``None`` where no two runs share candidates.
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
