"""Hyperparameter search with a stated budget, judged by tasks that the search never saw.

Trials are judged by cross-validation over tasks; with a number of trials by successive halving
(Jamieson and Talwalkar 2016): all on a quarter of the rows, the best third on half of them, the
best ninth on all. With a number of seconds, trials are drawn one after the other until the time is
up. The first trial is always the recipe as it stands.

The figure that is reported is nested (Cawley and Talbot 2010): the tasks are parted, and each part
is predicted by what a search on the *other* parts found. The recipe that comes out is found by one
more search on all tasks.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, RecipeError
from toolkit.progress import SILENT, Progress, Step
from toolkit.training.evaluate.bootstrap import difference_interval
from toolkit.training.members.crossfit import available_threads, cross_fit
from toolkit.training.members.ensemble import fit_ensemble
from toolkit.training.members.fit import FIELDS, check_recipe
from toolkit.training.recipes.recipe import Range, Recipe
from toolkit.training.table.folds import assign_folds
from toolkit.training.table.gather import gather
from toolkit.training.table.table import Table
from toolkit.training.tasks.throughput import judge, report

Floats = NDArray[np.float64]

RUNGS = ((0.25, 1 / 3), (0.5, 1 / 3), (1.0, 0.0))
"""Share of the rows that a rung's trials are judged on, and share of them that goes on."""

SPACES: dict[str, dict[str, Range]] = {
    "lightgbm": {
        "rounds": Range(low=80, high=500, log=True, integer=True),
        "learning_rate": Range(low=0.03, high=0.2, log=True),
        "num_leaves": Range(low=8, high=127, log=True, integer=True),
        "min_data_in_leaf": Range(low=5, high=100, log=True, integer=True),
        "feature_fraction": Range(low=0.15, high=1.0),
        "bagging_fraction": Range(low=0.4, high=1.0),
        "lambda_l2": Range(low=0.01, high=30.0, log=True),
        "emphasis": Range(low=0.0, high=2.0),
    },
    "xgboost": {
        "rounds": Range(low=80, high=500, log=True, integer=True),
        "eta": Range(low=0.03, high=0.3, log=True),
        "max_depth": Range(low=3, high=10, integer=True),
        "min_child_weight": Range(low=1.0, high=50.0, log=True),
        "colsample_bytree": Range(low=0.15, high=1.0),
        "subsample": Range(low=0.4, high=1.0),
        "lambda": Range(low=0.1, high=30.0, log=True),
        "emphasis": Range(low=0.0, high=2.0),
    },
    "ridge": {"alpha": Range(low=0.01, high=10_000.0, log=True)},
}
"""What is searched where a recipe declares no space, by library."""


@dataclass(frozen=True)
class TrialBudget:
    """So many trials in each of the searches, or so many seconds for all of them together."""

    trials: int | None = None
    seconds: float | None = None


def parse_budget(text: str) -> TrialBudget:
    """Read ``20`` (trials) or ``300s`` (seconds); raise ``RecipeError`` for anything else."""
    if re.fullmatch(r"[1-9]\d{0,4}", text):
        return TrialBudget(trials=int(text))
    if re.fullmatch(r"\d+(\.\d+)?s", text) and float(text[:-1]) > 0:
        return TrialBudget(seconds=float(text[:-1]))
    raise RecipeError(
        f"{text!r} is no budget of a search",
        cure="give trials (20) or seconds (300s), at most 99999 trials",
    )


def space_of(recipe: Recipe) -> dict[str, Range]:
    """The declared space, or that of the library of the recipe's first model.

    Raises
    ------
    RecipeError
        When that library has no default, or a range is empty.
    """
    library = recipe.models[0].library
    space = dict(recipe.search.space)
    if not space:
        if library not in SPACES:
            raise RecipeError(
                f"there is no default space for models of {library}",
                cure="declare one under [search.space]",
            )
        space = SPACES[library]
    for name, values in space.items():
        if values.high < values.low or (values.log and values.low <= 0):
            raise RecipeError(f"search.space.{name}: holds no value")
    return space


def draw(space: dict[str, Range], rng: np.random.Generator) -> dict[str, float | int]:
    """Draw one value of each parameter."""
    drawn: dict[str, float | int] = {}
    for name, values in space.items():
        if values.log:
            value = math.exp(rng.uniform(math.log(values.low), math.log(values.high)))
        else:
            value = float(rng.uniform(values.low, values.high))
        drawn[name] = round(value) if values.integer else float(f"{value:.4g}")
    return drawn


def applied(recipe: Recipe, changes: dict[str, float | int]) -> Recipe:
    """Return the recipe with parameters changed in all models of its first one's library."""
    fields = {k: v for k, v in changes.items() if k in FIELDS}
    params = {k: v for k, v in changes.items() if k not in fields}
    models = tuple(
        model.model_copy(update={**fields, "params": {**model.params, **params}})
        if model.library == recipe.models[0].library
        else model
        for model in recipe.models
    )
    return recipe.model_copy(update={"models": models})


@dataclass
class _Search:
    """One search on some tasks of a table."""

    table: Table
    recipe: Recipe
    budget: TrialBudget
    threads: int
    seed: int
    step: Step
    fits: int = 0

    def run(self) -> tuple[Recipe, list[dict[str, Any]]]:
        """Return the best recipe found and every trial at its last rung."""
        space, rng = space_of(self.recipe), np.random.default_rng(self.seed)
        if self.budget.trials is not None:
            trials = [{}, *(draw(space, rng) for _ in range(self.budget.trials - 1))]
            found = self._halving(trials)
        else:
            found = self._until(lambda: draw(space, rng))
        # A trial that got further was better where they were compared.
        best = max(found, key=lambda trial: (trial["rows"], trial["score"]))
        return applied(self.recipe, best["changes"]), found

    def _halving(self, trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
        done: list[dict[str, Any]] = []
        left = list(enumerate(trials))
        for rung, (rows, share) in enumerate(RUNGS):
            judged = [(self._score(changes, rows), number, changes) for number, changes in left]
            judged.sort(key=lambda entry: (-entry[0], entry[1]))
            keep = max(1, round(len(judged) * share)) if rung + 1 < len(RUNGS) else 0
            done += [
                {"trial": number, "changes": changes, "score": score, "rows": rows}
                for score, number, changes in judged[keep:]
            ]
            left = [(number, changes) for _, number, changes in judged[:keep]]
        return done

    def _until(self, next_trial: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        end = time.perf_counter() + float(self.budget.seconds or 0.0)
        done: list[dict[str, Any]] = []
        changes: dict[str, Any] = {}
        while not done or time.perf_counter() < end:
            score = self._score(changes, 1.0)
            done.append({"trial": len(done), "changes": changes, "score": score, "rows": 1.0})
            changes = next_trial()
        return done

    def _score(self, changes: dict[str, Any], rows: float) -> float:
        """Mean over left-out tasks of the mean of top-1, top-5 and pairwise accuracy."""
        recipe = applied(self.recipe, changes)
        data = recipe.data.model_copy(
            update={
                "rows_per_task": max(10, round(recipe.data.rows_per_task * rows)),
                "max_rows": max(100, round(recipe.data.max_rows * rows)),
            }
        )
        split = recipe.split.model_copy(update={"folds": recipe.search.inner_folds})
        recipe = recipe.model_copy(update={"data": data, "split": split, "seed": self.seed})
        fitted = cross_fit(self.table, recipe, keep_all=False, threads=self.threads)
        self.fits += len(fitted.members)
        self.step.advance(len(fitted.members))
        return objective(self.table, fitted.predictions, recipe)


def objective(table: Table, predictions: Floats, recipe: Recipe) -> float:
    """What trials are compared by: the mean of top-1, top-5 and pairwise accuracy over tasks."""
    judged = judge(table, predictions, judged_records(table, recipe))
    scores = [np.nanmean([t.metrics.top1, t.metrics.top5, t.metrics.pairwise]) for t in judged]
    return float(np.mean(scores)) if scores else float("-inf")


def judged_records(table: Table, recipe: Recipe) -> int:
    """Candidates that a task needs to be judged; fewer where no task has as many as asked for."""
    enough = table.good_counts() >= recipe.data.judged_records
    return recipe.data.judged_records if enough.any() else recipe.data.min_records


def search_recipe(
    dataset: Dataset,
    recipe: Recipe,
    budget: TrialBudget,
    *,
    task_ids: list[str] | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> tuple[Recipe, dict[str, Any]]:
    """Search a recipe's parameters; returns the found recipe and what can be said of the search.

    The report's figures are those of the nested search, beside those of the recipe as it stands on
    the same folds (``as_it_stands``) and the paired differences (``ahead``).

    Raises
    ------
    RecipeError, DatasetError
        When the space holds nothing, or there are too few workloads to be parted.
    """
    check_recipe(recipe, "throughput")
    started = time.perf_counter()
    space = space_of(recipe)
    threads = threads or available_threads()
    table, _ = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    outer = recipe.search.outer_folds
    split = recipe.split.model_copy(update={"by": "task", "folds": outer})
    folds = assign_folds(table, split, recipe.seed)
    numbers = np.unique(folds).tolist()
    if len(set(table.workloads)) < outer + recipe.search.inner_folds:
        raise DatasetError(
            f"{len(set(table.workloads))} workloads are too few for {outer} outer and "
            f"{recipe.search.inner_folds} inner folds",
            where=dataset.path,
            cure="lower search.outer_folds and search.inner_folds, or ingest more logs",
        )
    own = budget
    if budget.seconds is not None:
        own = TrialBudget(seconds=budget.seconds / (len(numbers) + 1))
    nested, plain = np.full(len(table), np.nan), np.full(len(table), np.nan)
    fits, picked = 0, []
    fold_of_row = folds[table.task]
    with progress.step("searching") as step:
        for number in numbers:
            held = np.flatnonzero(fold_of_row == number)
            inside = table.take(np.flatnonzero(fold_of_row != number))
            search = _Search(inside, recipe, own, threads, recipe.seed + 1 + number, step)
            found, trials = search.run()
            enough = inside.good_counts() >= recipe.data.min_records
            rows = np.flatnonzero(inside.good & enough[inside.task])
            for chosen, into in ((found, nested), (recipe, plain)):
                ensemble = fit_ensemble(inside, rows, chosen, threads=threads)
                into[held] = ensemble.predict(table.features[held])
            fits += search.fits + 2
            picked.append(_best(trials))
            step.advance(2, note=f"part {number + 1} of {len(numbers)}")
        last = _Search(table, recipe, own, threads, recipe.seed, step)
        found, trials = last.run()
    wanted = judged_records(table, recipe)
    judged, stands = judge(table, nested, wanted), judge(table, plain, wanted)
    if not judged:
        raise DatasetError("no task has enough good candidates to be judged", where=dataset.path)
    return found, {
        "budget": {"trials": budget.trials, "seconds": budget.seconds},
        "space": {name: values.model_dump() for name, values in space.items()},
        "fits": fits + last.fits,
        "outer_folds": len(numbers),
        "inner_folds": recipe.search.inner_folds,
        "nested": _without_tasks(report(judged, recipe.seed)),
        "as_it_stands": _without_tasks(report(stands, recipe.seed)),
        "ahead": _ahead(judged, stands, recipe.seed),
        "picked_by_part": picked,
        "picked": _best(trials),
        "trials": trials,
        "seconds": time.perf_counter() - started,
    }


def _best(trials: list[dict[str, Any]]) -> dict[str, Any]:
    best = max(trials, key=lambda trial: (trial["rows"], trial["score"]))
    return {"changes": best["changes"], "inner_score": best["score"]}


def _without_tasks(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if key != "tasks"}


def _ahead(judged: list[Any], stands: list[Any], seed: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in ("top1", "top5", "pairwise"):
        a, b = (np.array([getattr(t.metrics, name) for t in side]) for side in (judged, stands))
        mean, low, high = difference_interval(a, b, seed=seed)
        result[name], result[f"{name}_interval"] = mean, [low, high]
    return result
