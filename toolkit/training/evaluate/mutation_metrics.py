"""What a mutation model is worth: the gain of the direction that it picks, on unseen tasks.

Only directions that were recorded can be picked (masked arg max), and only candidates with two or
more of them are judged. ``gain_share`` is the mean gain of the picks over the mean gain of an
oracle that always picks the best recorded direction, over all judged candidates; intervals
resample tasks. Beside it stand a uniform choice, the direction that is best on average on the
training tasks (base rate), and a draw by TVM's fixed rule weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.training.evaluate.bootstrap import mean_interval, ratio_interval
from toolkit.training.table.mutation_labels import Choices

Floats = NDArray[np.float64]

POLICIES = ("model", "sampled", "uniform", "base_rate", "fixed_weights", "oracle")
BINS = 10


@dataclass
class TaskGains:
    """Sums over the judged candidates of one task.

    ``gain`` has the summed gain of each policy; ``right`` counts picks that are as good as the
    oracle's up to a tie; ``log_loss`` sums minus the log of the probability given to the best
    (the mean over directions that are best up to a tie); ``reliability`` has, for each tenth of
    the pick's probability, how many picks there were, the sum of their probabilities, and how many
    were best (one of k equal ones: 1 / k).
    """

    task_id: str
    candidates: int = 0
    right: float = 0.0
    log_loss: float = 0.0
    gain: dict[str, float] | None = None
    reliability: Floats = field(default_factory=lambda: np.zeros((BINS, 3)))

    def add(
        self,
        found: Choices,
        predicted: Floats,
        weights: Floats,
        base: Mapping[str, float],
        tie: float,
        temperature: float,
    ) -> None:
        """Judge one group's candidates; ``predicted`` is ``(n, directions)``, NaN: no opinion."""
        known = np.isfinite(found.gain)
        rows = np.flatnonzero(known.sum(axis=1) >= 2)
        if self.gain is None:
            self.gain = dict.fromkeys(POLICIES, 0.0)
        if len(rows) == 0:
            return
        mask, gain = known[rows], np.where(known[rows], found.gain[rows], 0.0)
        guess = np.where(np.isfinite(predicted[rows]), predicted[rows], 0.0)
        prior = np.array([base.get(name, 0.0) for name in found.names])
        best = np.where(mask, gain, -np.inf).max(axis=1)
        picked = _pick(np.where(mask, guess, -np.inf), gain)
        share = _shared(mask, weights, found.rules)
        self.candidates += len(rows)
        self.right += float((picked >= best - tie).sum())
        chance = softmax(guess, mask, temperature)
        near = mask & (gain >= best[:, None] - tie)
        # Directions that gain alike up to a tie share the place of the best one.
        truth = near / near.sum(axis=1, keepdims=True)
        self.log_loss -= float((truth * np.log(np.maximum(chance, 1e-12))).sum())
        first = np.where(mask, guess, -np.inf).argmax(axis=1)
        self._rely(chance, first, truth)
        for name, values in (
            ("model", picked),
            ("sampled", (chance * gain).sum(axis=1)),
            ("uniform", gain.sum(axis=1) / mask.sum(axis=1)),
            ("base_rate", _pick(np.where(mask, prior, -np.inf), gain)),
            ("fixed_weights", (share * gain).sum(axis=1)),
            ("oracle", best),
        ):
            self.gain[name] += float(values.sum())

    def _rely(self, chance: Floats, picked: NDArray[np.int64], truth: Floats) -> None:
        """Count picks by the probability that they were given."""
        own = np.arange(len(picked))
        given, right = chance[own, picked], truth[own, picked]
        place = np.minimum((given * BINS).astype(np.int64), BINS - 1)
        for column, values in enumerate((np.ones(len(own)), given, right)):
            self.reliability[:, column] += np.bincount(place, values, BINS)


def _pick(score: Floats, gain: Floats) -> Floats:
    """Mean gain of the directions that share the highest score, one value a candidate."""
    top = score == score.max(axis=1, keepdims=True)
    return np.asarray((gain * top).sum(axis=1) / top.sum(axis=1))


def _shared(mask: NDArray[np.bool_], weights: Floats, rules: Sequence[str]) -> Floats:
    """Probability of each recorded direction when a rule is drawn by its weight, then a knob."""
    share = np.zeros(mask.shape)
    for rule in set(rules):
        own = [place for place, name in enumerate(rules) if name == rule]
        recorded = mask[:, own].sum(axis=1, keepdims=True)
        share[:, own] = mask[:, own] * weights[own[0]] / np.maximum(recorded, 1)
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def softmax(guess: Floats, mask: NDArray[np.bool_], temperature: float) -> Floats:
    """Probability of each recorded direction, from predicted gains over a temperature."""
    scaled = np.where(mask, guess / temperature, -np.inf)
    scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


def summarize_gains(tasks: Sequence[TaskGains], *, seed: int = 0) -> dict[str, Any]:
    """Shares of the oracle's gain with 95 % intervals by task; accuracy; per-task means."""
    judged = [task for task in tasks if task.candidates and task.gain]
    result: dict[str, Any] = {
        "n_test_tasks": len(judged),
        "judged_candidates": sum(task.candidates for task in judged),
    }
    if not judged:
        return result
    number = np.array([float(task.candidates) for task in judged])
    sums = {name: np.array([(task.gain or {})[name] for task in judged]) for name in POLICIES}
    result["accuracy"], low, high = ratio_interval(
        np.array([task.right for task in judged]), number, seed=seed
    )
    result["accuracy_interval"] = [low, high]
    for name, key in (
        ("model", "gain_share"),
        ("sampled", "gain_share_sampled"),
        ("uniform", "gain_share_uniform"),
        ("base_rate", "gain_share_base_rate"),
        ("fixed_weights", "gain_share_fixed_weights"),
    ):
        result[key], low, high = ratio_interval(sums[name], sums["oracle"], seed=seed)
        result[f"{key}_interval"] = [low, high]
    # Every task counts alike here, however many of its candidates are judged.
    result["gain_share_by_task"], low, high = ratio_interval(
        sums["model"] / number, sums["oracle"] / number, seed=seed
    )
    result["gain_share_by_task_interval"] = [low, high]
    for name in ("base_rate", "fixed_weights"):
        ahead = (sums["model"] - sums[name]) / number
        result[f"ahead_of_{name}"], low, high = mean_interval(ahead, seed=seed)
        result[f"ahead_of_{name}_interval"] = [low, high]
    result["oracle_gain"] = float(sums["oracle"].sum() / number.sum())
    result["model_gain"] = float(sums["model"].sum() / number.sum())
    # Each task counts by its candidates here, as in log_loss.
    reliability = np.sum([task.reliability for task in judged], axis=0)
    off = np.abs(reliability[:, 1] - reliability[:, 2]).sum()
    result["calibration_error"] = float(off / number.sum())
    result["reliability"] = [
        {"picks": int(n), "probability": p / n, "right": r / n}
        for n, p, r in reliability.tolist()
        if n
    ]
    result["log_loss"] = float(sum(task.log_loss for task in judged) / number.sum())
    return result


def gain_rows(tasks: Sequence[TaskGains]) -> list[dict[str, Any]]:
    """One JSON-ready row a task, with mean gains."""
    return [
        {
            "task_id": task.task_id,
            "candidates": task.candidates,
            "accuracy": task.right / task.candidates,
            **{f"gain_{name}": value / task.candidates for name, value in task.gain.items()},
        }
        for task in tasks
        if task.candidates and task.gain
    ]
