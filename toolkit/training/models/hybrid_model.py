"""Halide's cost model: hand-made terms with coefficients that a small network predicts.

Adams et al. 2019, "Learning to Optimize Halide with Tree Search and Random Programs", section 4:
run time is a dot product of terms that count what a processor does (work, traffic at each level of
the caches, idle cores, starts of threads, allocation, page faults) with coefficients that are never
negative. A network of two heads, one for what the schedule decides and one for the algorithm,
predicts the coefficients. Terms are built from the toolkit's feature columns and are relative to
the operation, so that they have a similar size for all tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.models.base import SmallNetwork, TrainingRows, one_blas_thread, read_npz
from toolkit.training.models.network_model import Inputs
from toolkit.training.recipes.recipe import ModelOptions

_CUTS = ("reg", "core", "mid", "stage", "outer")
_OPERANDS = ("data", "weight", "out")

TERMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "constant": ((), ()),
    "work": (("serial_steps",), ("flops",)),
    "padded_vectors": (("ragged",), ("reg_vector_fill",)),
    "chained_work": (("chained_steps",), ("flops",)),
    "computed_twice": (("steps_over_least",), ()),
    **{
        f"{cut}_{operand}_traffic": ((f"{cut}_{operand}_bytes",), (f"{cut}_volume",))
        for cut in _CUTS
        for operand in _OPERANDS
    },
    "thread_traffic": (("thread_bytes",), ("thread_work",)),
    "vector_loads": (("loads_per_fma_256",), ()),
    "registers": (("accumulators_256",), ()),
    "idle_cores": (("serial_over_ideal",), ()),
    "uneven_threads": ((), ("thread_balance",)),
    "starts": (("starts_per_step",), ()),
    "loop_turns": ((), ("inner_volume",)),
    "allocation": (("staged_bytes",), ("flops",)),
    "page_faults": (("op_out_bytes",), ("flops",)),
    "clocks": (("clocks_sum",), ()),
    "waiting": (("clocks_latency",), ()),
    "waves": (("waves",), ()),
}
"""Columns to multiply, and columns to divide by; a term with an absent column is 0."""

ALGORITHM = ("op_", "hw_", "flops")
"""Prefixes of columns that describe the computation and the machine; others are the schedule's."""

LARGEST = 1e3
"""Terms are clipped at this many times their mean over the training rows."""

CHUNK = 64
"""This many rows of one task enter a step of Adam together: the loss compares them."""

ABSOLUTE = 0.1
"""Weight of the error itself in the loss; the rest is its difference from the task's mean."""

_NAMES = ("schedule", "schedule_bias", "algorithm", "algorithm_bias", "out", "out_bias")
_Arrays = list[NDArray[np.float32]]


def terms_of(features: Matrix, columns: Sequence[str]) -> Floats:
    """The terms of rows, ``(n, terms)``, before they are scaled; 0 where a column is absent."""
    place = {name: number for number, name in enumerate(columns)}
    result = np.zeros((len(features), len(TERMS)))
    with np.errstate(all="ignore"):
        for number, (over, under) in enumerate(TERMS.values()):
            if not {*over, *under} <= place.keys():
                continue
            value = np.ones(len(features))
            for name in over:
                value = value * features[:, place[name]]
            for name in under:
                value = value / features[:, place[name]]
            result[:, number] = np.where(np.isfinite(value) & (value > 0), value, 0.0)
    return result


class HybridModel(SmallNetwork):
    """Minus the log of a dot product of terms and predicted coefficients; higher is faster."""

    library = SUBJECT = "hybrid"
    suffix = ".npz"
    DEFAULTS: ClassVar = {"width": 64.0, "alpha": 1e-4, "learning_rate": 2e-3, "batch": 512.0}
    """Units of the schedule's head (the algorithm's has a quarter), penalty of squared weights,
    step of Adam, rows per step."""

    def __init__(
        self, columns: tuple[str, ...], inputs: Inputs, scale: Floats, weights: _Arrays
    ) -> None:
        self._columns, self._inputs, self._scale = columns, inputs, scale
        self._weights = weights
        self._of_algorithm = np.array([name.startswith(ALGORITHM) for name in columns], dtype=bool)

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> HybridModel:
        """Fit by Adam, ``rounds`` times over all rows; ``params`` are those of ``DEFAULTS``."""
        del threads  # One thread: more threads slow small products down.
        chosen = cls.chosen(options, device)
        rng = np.random.default_rng(seed)
        columns = rows.columns or ("",) * rows.features.shape[1]
        terms = terms_of(rows.features, columns)
        there = np.maximum((terms > 0).sum(axis=0), 1)
        scale = np.maximum(terms.sum(axis=0) / there, 1e-300)
        model = cls(columns, Inputs.of(rows.features), scale, [])
        given = model._inputs.apply(rows.features)
        known = model._scaled(terms)
        model._weights = _first(
            given.shape[1], model._algorithm_inputs(given).shape[1], chosen, rng
        )
        moments = [[np.zeros_like(one) for one in model._weights] for _ in range(2)]
        weight, step = rows.weight / rows.weight.mean(), 0
        with one_blas_thread():
            for _ in range(options.rounds):
                for own in _batches(rows.group, int(chosen["batch"]), rng):
                    step += 1
                    slopes = model._slopes(
                        given[own], known[own], rows.target[own], weight[own], rows.group[own]
                    )
                    _adam(model._weights, slopes, moments, step, chosen)
        return model

    def _scaled(self, terms: Floats) -> Floats:
        return np.asarray(np.minimum(terms / self._scale, LARGEST))

    def _algorithm_inputs(self, given: Matrix) -> Matrix:
        """Return the inputs that describe the computation; unnamed columns are the schedule's."""
        width = len(self._columns)
        return given[:, :width][:, self._of_algorithm]

    def _forward(self, given: Matrix, terms: Floats) -> tuple[Matrix, Matrix, Floats, Floats]:
        """Return both heads joined, the algorithm's inputs, the softplus's inputs, and run time."""
        schedule, schedule_bias, algorithm, algorithm_bias, out, out_bias = self._weights
        own = self._algorithm_inputs(given)
        # Halide keeps the algorithm's weights positive: more of anything costs more.
        heads = np.hstack(
            [given @ schedule + schedule_bias, own @ np.abs(algorithm) + algorithm_bias]
        )
        np.maximum(heads, 0.0, out=heads)
        raw = (heads @ out + out_bias).astype(np.float64)
        time = (np.logaddexp(0.0, raw) * terms).sum(axis=1)
        return heads, own, raw, np.maximum(time, 1e-9)

    def _slopes(
        self, given: Matrix, terms: Floats, target: Floats, weight: Floats, group: Ints
    ) -> _Arrays:
        """Gradient of half the weighted mean squared error, in the order of the weights."""
        schedule, _, algorithm, _, out, _ = self._weights
        heads, own, raw, time = self._forward(given, terms)
        error = -np.log(time) - target
        task = np.unique(group, return_inverse=True)[1]
        total = np.bincount(task, weight)
        mean = (np.bincount(task, weight * error) / total)[task]
        slope = weight * (error - (1 - ABSOLUTE) * mean) / len(error)
        by_raw = (-slope / time)[:, None] * terms / (1.0 + np.exp(-raw))
        by_raw = np.clip(by_raw, -1.0, 1.0).astype(np.float32)
        by_heads = by_raw @ out.T * (heads > 0)
        units = schedule.shape[1]
        first, second = by_heads[:, :units], by_heads[:, units:]
        return [
            given.T @ first,
            first.sum(axis=0),
            (own.T @ second) * np.sign(algorithm),
            second.sum(axis=0),
            heads.T @ by_raw,
            by_raw.sum(axis=0),
        ]

    @classmethod
    def load(cls, path: Path) -> HybridModel:
        """Read the weights."""
        with read_npz(path) as kept:
            weights = [kept[name] for name in _NAMES]
            columns = tuple(kept["columns"].tolist())
            return cls(columns, Inputs.load(kept), kept["term_scale"], weights)

    def save(self, path: Path) -> None:
        """Write the weights."""
        kept: dict[str, Any] = dict(zip(_NAMES, self._weights, strict=True))
        kept |= self._inputs.arrays()
        kept["columns"] = np.array(self._columns, dtype=np.str_)
        np.savez_compressed(path, term_scale=self._scale, **kept)

    def coefficients(self, features: Matrix) -> tuple[Floats, Floats]:
        """Predicted coefficients and scaled terms of rows, ``(n, terms)`` each, as in ``TERMS``.

        Their products add up to run time, in a unit that differs between tasks.
        """
        terms = self._scaled(terms_of(features, self._columns))
        with one_blas_thread():
            raw = self._forward(self._inputs.apply(features), terms)[2]
        return np.logaddexp(0.0, raw), terms

    def predict(self, features: Matrix) -> Floats:
        """Minus the log of predicted run time."""
        coefficients, terms = self.coefficients(features)
        return np.asarray(-np.log(np.maximum((coefficients * terms).sum(axis=1), 1e-9)))

    def importance(self) -> Floats:
        """Share of each column in the absolute weights along all paths to the coefficients."""
        schedule, _, algorithm, _, out, _ = self._weights
        counts = np.abs(out).sum(axis=1).astype(np.float64)
        ways = np.abs(schedule) @ counts[: schedule.shape[1]]
        own = np.flatnonzero(self._of_algorithm)
        ways[own] += np.abs(algorithm) @ counts[schedule.shape[1] :]
        return self._inputs.shares(ways)


def _first(
    inputs: int, of_algorithm: int, chosen: dict[str, float], rng: np.random.Generator
) -> _Arrays:
    """Return initial weights; all terms start with about the same coefficient."""
    units = max(4, int(chosen["width"]))
    aside = units // 4
    shapes = (inputs, units), (units,), (of_algorithm, aside), (aside,)
    weights = [
        rng.normal(0, (2 / max(shape[0], 1)) ** 0.5, shape) if len(shape) == 2 else np.zeros(shape)
        for shape in shapes
    ]
    weights += [
        rng.normal(0, 0.1 / units**0.5, (units + aside, len(TERMS))),
        np.full(len(TERMS), np.log(np.expm1(1 / len(TERMS)))),
    ]
    return [weight.astype(np.float32) for weight in weights]


def _batches(group: Ints, size: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Give all rows once, in batches; a batch consists of chunks of one task each."""
    order = np.lexsort((rng.random(len(group)), group))
    edges = np.flatnonzero(np.diff(group[order])) + 1
    chunks = [
        own[start : start + CHUNK]
        for own in np.split(order, edges)
        for start in range(0, len(own), CHUNK)
    ]
    several = max(1, size // CHUNK)
    mixed = rng.permutation(len(chunks))
    for start in range(0, len(mixed), several):
        yield np.concatenate([chunks[number] for number in mixed[start : start + several]])


def _adam(
    weights: _Arrays, slopes: _Arrays, moments: list[_Arrays], step: int, chosen: dict[str, float]
) -> None:
    """One step of Adam (Kingma and Ba 2015), in place."""
    rate = chosen["learning_rate"] * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
    for weight, slope, first, second in zip(weights, slopes, *moments, strict=True):
        slope = slope + chosen["alpha"] * weight
        first += 0.1 * (slope - first)
        second += 0.001 * (slope * slope - second)
        weight -= (rate * first / (np.sqrt(second) + 1e-8)).astype(np.float32)
