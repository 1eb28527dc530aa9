"""Metrics of a mutation model: the gain of the directions that it picks, on unseen tasks.

Only directions that were recorded can be picked (masked arg max), and only candidates with two or
more of them are judged. ``gain_share`` is the mean gain of the picks over the mean gain of an
oracle that always picks the best recorded direction, over all judged candidates; intervals
resample tasks. It is compared with a uniform choice, with the direction that is best on average on
the training tasks (base rate), and with a draw by TVM's fixed rule weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit.results import Result
from toolkit.training.arrays import Bools, Floats, Ints
from toolkit.training.evaluate.bootstrap import Interval, mean_interval, named, ratio_interval
from toolkit.training.table.mutation_labels import Choices

POLICIES = ("model", "sampled", "uniform", "base_rate", "fixed_weights", "oracle")
BINS = 10


@dataclass
class TaskGains:
    """Sums over the judged candidates of one task.

    ``gain`` has the summed gain of each policy; ``right`` counts picks that are as good as the
    oracle's up to a tie; ``log_loss`` sums the negative log of the probability of the best
    direction (a mean over those that are best up to a tie); ``reliability`` has, for each tenth of
    the pick's probability, the number of picks, the sum of their probabilities, and how many were
    best (one of k equal ones: 1 / k).
    """

    task_id: str
    candidates: int = 0
    right: float = 0.0
    log_loss: float = 0.0
    gain: dict[str, float] = field(default_factory=lambda: dict.fromkeys(POLICIES, 0.0))
    reliability: Floats = field(default_factory=lambda: np.zeros((BINS, 3)))

    def add(
        self,
        found: Choices,
        predicted: Floats,
        weights: Floats,
        base: Mapping[str, float] | None,
        tie: float,
        temperature: float,
    ) -> None:
        """Judge one group's candidates; ``predicted`` is ``(n, directions)``, NaN: unknown.

        ``base`` is ``None`` if the dataset holds no training task: the base rate is then unknown.
        """
        known = np.isfinite(found.gain)
        rows = np.flatnonzero(known.sum(axis=1) >= 2)
        if len(rows) == 0:
            return
        mask, gain = known[rows], np.where(known[rows], found.gain[rows], 0.0)
        guess = np.where(np.isfinite(predicted[rows]), predicted[rows], 0.0)
        by_prior = np.full(len(rows), np.nan)
        if base is not None:
            prior = np.array([base.get(name, 0.0) for name in found.names])
            by_prior = _pick(np.where(mask, prior, -np.inf), gain)
        best = np.where(mask, gain, -np.inf).max(axis=1)
        picked = _pick(np.where(mask, guess, -np.inf), gain)
        share = _shared(mask, weights, found.rules)
        self.candidates += len(rows)
        self.right += float((picked >= best - tie).sum())
        chance = softmax(guess, mask, temperature)
        near = mask & (gain >= best[:, None] - tie)
        # Directions within a tie of the best one share its place.
        truth = near / near.sum(axis=1, keepdims=True)
        self.log_loss -= float((truth * np.log(np.maximum(chance, 1e-12))).sum())
        first = np.where(mask, guess, -np.inf).argmax(axis=1)
        self._rely(chance, first, truth)
        for name, values in (
            ("model", picked),
            ("sampled", (chance * gain).sum(axis=1)),
            ("uniform", gain.sum(axis=1) / mask.sum(axis=1)),
            ("base_rate", by_prior),
            ("fixed_weights", (share * gain).sum(axis=1)),
            ("oracle", best),
        ):
            self.gain[name] += float(values.sum())

    def _rely(self, chance: Floats, picked: Ints, truth: Floats) -> None:
        """Count picks by the probability that the model gave them."""
        own = np.arange(len(picked))
        given, right = chance[own, picked], truth[own, picked]
        place = np.minimum((given * BINS).astype(np.int64), BINS - 1)
        for column, values in enumerate((np.ones(len(own)), given, right)):
            self.reliability[:, column] += np.bincount(place, values, BINS)


def _pick(score: Floats, gain: Floats) -> Floats:
    """Mean gain of the directions that share the highest score, one value per candidate."""
    top = score == score.max(axis=1, keepdims=True)
    return np.asarray((gain * top).sum(axis=1) / top.sum(axis=1))


def _shared(mask: Bools, weights: Floats, rules: Sequence[str]) -> Floats:
    """Probability of each recorded direction when a rule is drawn by its weight, then a knob."""
    share = np.zeros(mask.shape)
    for rule in set(rules):
        own = [place for place, name in enumerate(rules) if name == rule]
        recorded = mask[:, own].sum(axis=1, keepdims=True)
        share[:, own] = mask[:, own] * weights[own[0]] / np.maximum(recorded, 1)
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def softmax(guess: Floats, mask: Bools, temperature: float) -> Floats:
    """Probability of each recorded direction, from predicted gains over a temperature."""
    scaled = np.where(mask, guess / temperature, -np.inf)
    scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


@dataclass(frozen=True, repr=False, kw_only=True)
class GainMetrics(Result):
    """Figures over judged tasks at one level; estimates have 95 % intervals by task.

    ``accuracy`` is the share of picks that are as good as the oracle's up to a tie. ``gain_share``
    is the share of the oracle's gain that the model's picks reach; ``_sampled`` is for draws from
    the model's probabilities, ``_uniform``, ``_base_rate`` and ``_fixed_weights`` for the policies
    of those names. In ``_by_task`` every task has the same weight, however many of its candidates
    are judged. ``ahead_of`` a policy is the mean over tasks of the model's gain minus the policy's.
    ``calibration_error`` and ``log_loss`` are about the picks' probabilities; each task counts by
    its candidates. ``enumerated`` has the same for tasks whose space was recorded completely.
    """

    n_test_tasks: int
    judged_candidates: int
    accuracy: float | None = None
    accuracy_interval: Interval | None = None
    gain_share: float | None = None
    gain_share_interval: Interval | None = None
    gain_share_sampled: float | None = None
    gain_share_sampled_interval: Interval | None = None
    gain_share_uniform: float | None = None
    gain_share_uniform_interval: Interval | None = None
    gain_share_base_rate: float | None = None
    gain_share_base_rate_interval: Interval | None = None
    gain_share_fixed_weights: float | None = None
    gain_share_fixed_weights_interval: Interval | None = None
    gain_share_by_task: float | None = None
    gain_share_by_task_interval: Interval | None = None
    ahead_of_base_rate: float | None = None
    ahead_of_base_rate_interval: Interval | None = None
    ahead_of_fixed_weights: float | None = None
    ahead_of_fixed_weights_interval: Interval | None = None
    oracle_gain: float | None = None
    model_gain: float | None = None
    calibration_error: float | None = None
    reliability: list[dict[str, Any]] | None = None
    log_loss: float | None = None
    enumerated: GainMetrics | None = None


def summarize_gains(tasks: Sequence[TaskGains], *, seed: int = 0) -> GainMetrics:
    """Combine the sums of tasks; tasks without a judged candidate do not count."""
    judged = [task for task in tasks if task.candidates]
    if not judged:
        return GainMetrics(n_test_tasks=0, judged_candidates=0)
    number = np.array([float(task.candidates) for task in judged])
    right = np.array([task.right for task in judged])
    sums = {name: np.array([task.gain[name] for task in judged]) for name in POLICIES}
    oracle = sums["oracle"]
    result = named("accuracy", ratio_interval(right, number, seed=seed))
    for name in POLICIES[:-1]:
        key = "gain_share" if name == "model" else f"gain_share_{name}"
        known = np.isfinite(sums[name])
        result |= named(key, ratio_interval(sums[name][known], oracle[known], seed=seed))
    by_task = ratio_interval(sums["model"] / number, oracle / number, seed=seed)
    result |= named("gain_share_by_task", by_task)
    for name in ("base_rate", "fixed_weights"):
        ahead = (sums["model"] - sums[name]) / number
        result |= named(f"ahead_of_{name}", mean_interval(ahead, seed=seed))
    reliability = np.sum([task.reliability for task in judged], axis=0)
    off = np.abs(reliability[:, 1] - reliability[:, 2]).sum()
    return GainMetrics(
        n_test_tasks=len(judged),
        judged_candidates=sum(task.candidates for task in judged),
        **result,
        oracle_gain=float(oracle.sum() / number.sum()),
        model_gain=float(sums["model"].sum() / number.sum()),
        calibration_error=float(off / number.sum()),
        reliability=[
            {"picks": int(n), "probability": p / n, "right": r / n}
            for n, p, r in reliability.tolist()
            if n
        ],
        log_loss=float(sum(task.log_loss for task in judged) / number.sum()),
    )


def gain_rows(tasks: Sequence[TaskGains]) -> list[dict[str, Any]]:
    """One JSON-ready row per task, with mean gains."""
    return [
        {
            "task_id": task.task_id,
            "candidates": task.candidates,
            "accuracy": task.right / task.candidates,
            **{f"gain_{name}": value / task.candidates for name, value in task.gain.items()},
        }
        for task in tasks
        if task.candidates
    ]
