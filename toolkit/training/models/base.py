"""The model interface: from rows of features with a target, by task, to a predictor on disk.

Also code that several models share, mainly boosted trees.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import ModelError, RecipeError
from toolkit.training.arrays import Bools, Floats, Ints, Matrix
from toolkit.training.recipes.recipe import ModelOptions
from toolkit.training.table.neighbours import Cliques, neighbour_loss


@dataclass(frozen=True)
class TrainingRows:
    """Training rows of a model.

    ``features`` is float32 ``(n, d)``, NaN where a quantity does not exist. Three arrays have one
    value per row: ``target`` (higher is faster; its unit is ``ModelOptions.target``), ``weight``
    (positive) and ``group``, the task's number, ascending (rankers need a task's rows together).
    ``cliques`` says which rows are neighbours, for the objective ``neighbours``; ``columns`` names
    the features, if they have names.
    """

    features: Matrix
    target: Floats
    weight: Floats
    group: Ints
    cliques: Cliques | None = None
    columns: tuple[str, ...] = ()


@runtime_checkable
class Model(Protocol):
    """A fitted predictor; deterministic given rows, options and seed."""

    library: str
    suffix: str

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> Model:
        """Fit to rows."""

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read what ``save`` wrote; raise ``ModelError`` where that is impossible."""

    def save(self, path: Path) -> None:
        """Write in the library's own format."""

    def predict(self, features: Matrix) -> Floats:
        """One raw output per row; higher is faster."""

    def importance(self) -> Floats:
        """Total gain of each column (or what the library has instead); sums to 1 or 0."""


HELD_OUT = 8
"""Early stopping holds out one task in this many, at least one."""


def part_tasks(rows: TrainingRows, seed: int) -> tuple[TrainingRows, TrainingRows] | None:
    """Split rows by task, most to fit on and some to stop by; ``None`` with one task."""
    tasks = np.unique(rows.group)
    if len(tasks) < 2:
        return None
    held = np.random.default_rng(seed).permutation(tasks)[: max(1, len(tasks) // HELD_OUT)]
    inside = np.isin(rows.group, held)

    def take(chosen: Bools) -> TrainingRows:
        by_row = ("features", "target", "weight", "group")
        return replace(rows, cliques=None, **{n: getattr(rows, n)[chosen] for n in by_row})

    return take(~inside), take(inside)


def grades(target: Floats, group: Ints) -> NDArray[np.int32]:
    """Relevance grades 0 to 30 for LambdaRank: the target's quantile in its task.

    The fastest candidates of a task get grades of their own: the steps are geometric, so that half
    of the grades go to the fastest tenth.
    """
    result = np.empty(len(target), dtype=np.int32)
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        rank = np.empty(len(rows))
        rank[np.argsort(-target[rows], kind="stable")] = np.arange(1, len(rows) + 1)
        depth = np.log(rank) / np.log(max(len(rows), 2))
        result[rows] = np.round(30 * (1 - depth)).astype(np.int32)
    return result


def normalised(values: NDArray[np.floating]) -> Floats:
    """Scale non-negative values to the sum 1, where there is any."""
    result = np.asarray(values, dtype=np.float64)
    total = float(result.sum())
    return result / total if total > 0 else result


MOST = 10_000
"""Maximum of a network's parameters: the number of weights grows with the square of the width."""


class SmallNetwork:
    """Code that networks share: all parameters are numbers, and there is one way to fit them."""

    SUBJECT: ClassVar[str]
    """Subject of the error message that says what it supports."""
    DEFAULTS: ClassVar[dict[str, float]]

    @classmethod
    def check(cls, params: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Return the unknown names among parameters, and all known names.

        Raises ``ValueError`` if a known one is not a number above 0 and at most ``MOST``.
        """
        known = cls.DEFAULTS
        for name, value in params.items():
            if name in known and (isinstance(value, str | bool) or not 0 < value <= MOST):
                raise ValueError(f"{name} must be above 0 and at most {MOST:,}, not {value!r}")
        return [name for name in params if name not in known], list(known)

    @classmethod
    def chosen(cls, options: ModelOptions, device: str) -> dict[str, float]:
        """Return all parameters; raise ``RecipeError`` for options that it does not support."""
        if options.objective != "squared" or device != "cpu" or options.early_stopping:
            raise RecipeError(
                f"{cls.SUBJECT} needs objective = 'squared', device = 'cpu' and early_stopping = 0"
            )
        return {name: float(options.params.get(name, cls.DEFAULTS[name])) for name in cls.DEFAULTS}


def signed_logs(features: Matrix) -> Floats:
    """Signed logarithms of features."""
    values = np.asarray(features, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sign(values) * np.log1p(np.abs(values)))


def column_means(values: Floats) -> Floats:
    """Mean of each column's finite values; 0 for a column without any."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    return np.asarray(np.where(known, values, 0.0).sum(axis=0) / count)


def unreadable(path: Path, error: Exception) -> ModelError:
    """Return the error for a member's file that its library cannot read."""
    return ModelError(
        f"a member of the model cannot be read: {error}", where=path, cure="train it again"
    )


@contextmanager
def read_npz(path: Path) -> Iterator[Any]:
    """Open the arrays of a member; raise ``ModelError`` where one is absent or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            yield kept
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise unreadable(path, error) from None


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # Looks through the loaded libraries: takes milliseconds.


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit the process's BLAS to one thread inside a ``with`` statement.

    More threads do not speed up small products, and slow down several fits that run at once. With
    one thread, sums are also formed in the same order. Only one thread of a process can change the
    limit (the first one that did): hold it around code that starts computing threads.
    """
    limit: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limit


class BoostedTrees:
    """Boosted trees; a subclass adds what is specific to its library."""

    library: str
    suffix: str
    DEFAULTS: ClassVar[dict[str, Any]]
    RANKING: ClassVar[dict[str, Any]]
    """Further defaults of the ranking objectives."""
    OBJECTIVES: ClassVar[dict[str, str]]
    _train: Callable[..., Any]
    _fixed: Callable[[int, str], dict[str, Any]]
    """Threads, device → parameters that no recipe changes; ``RecipeError`` for an absent device."""
    _data: Callable[[TrainingRows, Any, Any, dict[str, Any], Any], Any]
    """Rows in the library's form, from rows, labels, tasks' sizes for ranking, parameters, like."""
    _watching: Callable[[Any, int], dict[str, Any]]
    """Held rows, rounds → arguments that stop training when they gained nothing for so long."""
    _best_round: Callable[[Any], int]
    _leaves: Callable[[Matrix], Any]

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> Any:
        """Fit to rows; early stopping finds the number of rounds on left-out tasks."""
        fixed = cls._fixed(threads, device)
        if options.objective not in cls.OBJECTIVES:
            raise RecipeError(
                f"{cls.library} does not support objective = {options.objective!r}",
                cure="use library = 'lightgbm'",
            )
        parameters = {
            **cls.DEFAULTS,
            **(cls.RANKING if options.objective in ("pairwise", "lambdarank") else {}),
            **options.params,
            **fixed,
            "objective": cls.OBJECTIVES[options.objective],
            "seed": seed,
        }

        def data(own: TrainingRows, like: Any = None) -> Any:
            if options.objective in ("pairwise", "lambdarank"):
                sizes = np.unique(own.group, return_counts=True)[1]
                return cls._data(own, grades(own.target, own.group), sizes, parameters, like)
            return cls._data(own, own.target, None, parameters, like)

        rounds = options.rounds
        parts = part_tasks(rows, seed) if options.early_stopping else None
        if options.objective == "neighbours":
            parameters["objective"] = _neighbours(rows)
        elif parts is not None:
            known = data(parts[0])
            watch = cls._watching(data(parts[1], known), options.early_stopping)
            rounds = cls._best_round(cls._train(parameters, known, rounds, **watch))
        return cls(cls._train(parameters, data(rows), rounds))

    def leaves(self, features: Matrix) -> NDArray[np.int32]:
        """Return the leaf of each tree that a row falls into, ``(n, trees)``."""
        return np.asarray(self._leaves(features), dtype=np.int32).reshape(len(features), -1)


def _neighbours(rows: TrainingRows) -> Any:
    """Objective ``neighbours`` as LightGBM calls it: predictions in, gradient and Hessian out."""
    cliques = rows.cliques
    if cliques is None:
        raise RecipeError(
            "objective = 'neighbours' needs recorded neighbours",
            cure="use it in a mutation recipe with method = 'expected'",
        )

    def loss(predicted: Floats, _: Any) -> tuple[Floats, Floats]:
        return neighbour_loss(predicted, rows.target, rows.weight, cliques)

    return loss
