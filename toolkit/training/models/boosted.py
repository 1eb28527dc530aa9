"""What boosted trees share, whichever library grows them: parameters, labels, when to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import RecipeError
from toolkit.training.arrays import Floats, Matrix
from toolkit.training.models.base import TrainingRows, grades, part_tasks
from toolkit.training.recipes.recipe import ModelOptions
from toolkit.training.table.cliques import neighbour_loss


class BoostedTrees:
    """A booster; a subclass says what is its library's own."""

    library: str
    suffix: str
    DEFAULTS: ClassVar[dict[str, Any]]
    RANKING: ClassVar[dict[str, Any]]
    """Further defaults of those that rank."""
    FIXED: ClassVar[dict[str, Any]]
    OBJECTIVES: ClassVar[dict[str, str]]
    _train: Callable[..., Any]
    _check_device: Callable[..., None]

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> Any:
        """Fit to rows; with early stopping as many rounds as were best on left-out tasks."""
        cls._check_device(device)
        if options.objective not in cls.OBJECTIVES:
            raise RecipeError(
                f"{cls.library} is not fitted with objective = {options.objective!r} here",
                cure="use library = 'lightgbm'",
            )
        parameters = {
            **cls.DEFAULTS,
            **(cls.RANKING if options.objective in ("pairwise", "lambdarank") else {}),
            **options.params,
            **cls.FIXED,
            "objective": cls.OBJECTIVES[options.objective],
            "nthread": threads,
            "seed": seed,
            "device": device,
        }

        def data(own: TrainingRows, like: Any = None) -> Any:
            if options.objective in ("pairwise", "lambdarank"):
                label, sizes = grades(own.target, own.group), own.group_sizes()
                return cls._data(own, label, sizes, parameters, like)
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

    @classmethod
    def _data(
        cls, rows: TrainingRows, label: Any, sizes: Any, parameters: dict[str, Any], like: Any
    ) -> Any:
        """The library's form of rows; ``sizes`` of the tasks for those that rank."""
        raise NotImplementedError

    @classmethod
    def _watching(cls, held: Any, patience: int) -> dict[str, Any]:
        """Arguments of training that stop it where held-out rows gained nothing for so long."""
        raise NotImplementedError

    @classmethod
    def _best_round(cls, booster: Any) -> int:
        raise NotImplementedError

    def _leaves(self, features: Matrix) -> Any:
        raise NotImplementedError

    def leaves(self, features: Matrix) -> NDArray[np.int32]:
        """Leaf of each tree that a row falls into, ``(n, trees)``."""
        return np.asarray(self._leaves(features), dtype=np.int32).reshape(len(features), -1)


def _neighbours(rows: TrainingRows) -> Any:
    """Objective ``neighbours`` as LightGBM calls it: predictions in, gradient and Hessian out."""
    cliques = rows.cliques
    if cliques is None:
        raise RecipeError(
            "objective = 'neighbours' needs recorded neighbours",
            cure="use it in a mutation recipe of the method 'expected'",
        )

    def loss(predicted: Floats, _: Any) -> tuple[Floats, Floats]:
        return neighbour_loss(predicted, rows.target, rows.weight, cliques)

    return loss
