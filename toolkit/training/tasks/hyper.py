"""Hyperparameter search with a stated budget, judged by tasks that the search never saw.

Trials are judged by cross-validation over tasks; with a number of trials by successive halving
(Jamieson and Talwalkar 2016): all on a quarter of the rows, the best third on half of them, the
best ninth on all. With a number of seconds, trials are drawn one after the other until the time is
up. The first trial is always the recipe as it stands.

The reported figure is nested (Cawley and Talbot 2010): the tasks are split into parts, and each
part is predicted by the recipe that a search on the *other* parts found. The resulting recipe is
found by one more search on all tasks.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from toolkit.children import available_processors
from toolkit.cluster import Cluster
from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, RecipeError
from toolkit.progress import SILENT, Progress, Step
from toolkit.results import Result
from toolkit.training.arrays import Floats
from toolkit.training.evaluate.metrics import ThroughputMetrics, difference, summarize_all
from toolkit.training.members.crossfit import assign_folds, cross_fit
from toolkit.training.members.ensemble import fit_ensemble
from toolkit.training.members.fit import FIELDS, check_recipe
from toolkit.training.recipes.recipe import Range, Recipe
from toolkit.training.table.gather import gather, networks_of
from toolkit.training.table.table import Table
from toolkit.training.tasks.throughput import judge

RUNGS = ((0.25, 1 / 3), (0.5, 1 / 3), (1.0, 0.0))
"""For each rung, the share of rows that trials are judged on, and the share of trials kept."""

Changes = dict[str, float | int]
"""Parameters that a trial changes in the recipe."""

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
    "hybrid": {
        "rounds": Range(low=10, high=60, log=True, integer=True),
        "width": Range(low=16, high=256, log=True, integer=True),
        "alpha": Range(low=1e-6, high=1e-2, log=True),
        "learning_rate": Range(low=5e-4, high=1e-2, log=True),
        "emphasis": Range(low=0.0, high=2.0),
    },
    "statements": {
        "rounds": Range(low=40, high=500, log=True, integer=True),
        "eta": Range(low=0.03, high=0.3, log=True),
        "max_depth": Range(low=3, high=10, integer=True),
        "min_child_weight": Range(low=0.01, high=50.0, log=True),
        "lambda": Range(low=0.1, high=30.0, log=True),
        "emphasis": Range(low=0.0, high=2.0),
    },
    "ridge": {"alpha": Range(low=0.01, high=10_000.0, log=True)},
}
"""Search spaces by library, for recipes that declare none."""


@dataclass(frozen=True)
class TrialBudget:
    """A number of trials for each search, or a number of seconds for all searches together."""

    trials: int | None = None
    seconds: float | None = None


def parse_budget(text: str) -> TrialBudget:
    """Read ``20`` (trials) or ``300s`` (seconds); raise ``RecipeError`` for anything else."""
    if re.fullmatch(r"[1-9]\d{0,4}", text):
        return TrialBudget(trials=int(text))
    if re.fullmatch(r"\d+(\.\d+)?s", text) and float(text[:-1]) > 0:
        return TrialBudget(seconds=float(text[:-1]))
    raise RecipeError(
        f"{text!r} is not a valid search budget",
        cure="give trials (for example 20, at most 99999) or seconds (300s)",
    )


def space_of(recipe: Recipe) -> dict[str, Range]:
    """Return the recipe's search space, or the default of its first model's library.

    Raises ``RecipeError`` when that library has no default, or a range holds no value.
    """
    library = recipe.models[0].library
    space = dict(recipe.search.space)
    if not space:
        if library not in SPACES:
            raise RecipeError(
                f"there is no default search space for library = {library!r}",
                cure="add one to the recipe under [search.space]",
            )
        space = SPACES[library]
    for name, values in space.items():
        if values.high < values.low or (values.log and values.low <= 0):
            raise RecipeError(f"search.space.{name}: low must be at most high, above 0 with log")
    return space


def draw(space: dict[str, Range], rng: np.random.Generator) -> Changes:
    """Draw one value of each parameter."""
    drawn: Changes = {}
    for name, values in space.items():
        if values.log:
            value = math.exp(rng.uniform(math.log(values.low), math.log(values.high)))
        else:
            value = float(rng.uniform(values.low, values.high))
        drawn[name] = round(value) if values.integer else float(f"{value:.4g}")
    return drawn


def applied(recipe: Recipe, changes: Changes) -> Recipe:
    """Return the recipe with changed parameters in all models of the first model's library."""
    fields = {k: v for k, v in changes.items() if k in FIELDS}
    params = {k: v for k, v in changes.items() if k not in fields}
    models = tuple(
        model.model_copy(update={**fields, "params": {**model.params, **params}})
        if model.library == recipe.models[0].library
        else model
        for model in recipe.models
    )
    return recipe.model_copy(update={"models": models})


@dataclass(frozen=True)
class SearchTrial:
    """Parameters that were tried, and their score on a share of the rows."""

    trial: int
    changes: Changes
    score: float
    rows: float

    def picked(self) -> dict[str, Any]:
        """Return the result's entry for the best trial."""
        return {"changes": self.changes, "inner_score": self.score}


@dataclass(frozen=True, repr=False, kw_only=True)
class SearchResult(Result):
    """Result of a search.

    ``fits`` is the number of fitted ensembles. ``nested`` has the figures of the nested search,
    ``as_it_stands`` those of the unchanged recipe on the same folds, ``ahead`` the paired
    differences. ``picked_by_part`` is what the search without each part of the tasks found;
    ``picked`` and ``trials`` (at their last rungs) are of the search on all tasks. ``recipe`` is
    the file of the found recipe, if it was written.
    """

    budget: dict[str, Any]
    space: dict[str, dict[str, Any]]
    fits: int
    outer_folds: int
    inner_folds: int
    nested: ThroughputMetrics
    as_it_stands: ThroughputMetrics
    ahead: Mapping[str, Any]
    picked_by_part: list[dict[str, Any]]
    picked: dict[str, Any]
    trials: list[dict[str, Any]]
    seconds: float
    recipe: str | None = None


@dataclass
class _Search:
    """One search on some tasks of a table."""

    table: Table
    recipe: Recipe
    budget: TrialBudget
    threads: int | Cluster | None
    seed: int
    step: Step
    networks: tuple[tuple[str, ...], ...] = ()
    fits: int = 0

    def run(self) -> tuple[Recipe, SearchTrial, list[SearchTrial]]:
        """Return the recipe found, its trial, and every trial at its last rung."""
        space, rng = space_of(self.recipe), np.random.default_rng(self.seed)
        if self.budget.trials is not None:
            trials = self._halving([{}, *(draw(space, rng) for _ in range(self.budget.trials - 1))])
        else:
            end = time.perf_counter() + float(self.budget.seconds or 0.0)
            trials = [self._trial(0, {}, 1.0)]
            while time.perf_counter() < end:
                trials.append(self._trial(len(trials), draw(space, rng), 1.0))
        # A trial that got further was better where they were compared.
        best = max(trials, key=lambda trial: (trial.rows, trial.score))
        return applied(self.recipe, best.changes), best, trials

    def _halving(self, left: Sequence[Changes]) -> list[SearchTrial]:
        done: list[SearchTrial] = []
        numbered = list(enumerate(left))
        for rows, share in RUNGS:
            judged = [self._trial(number, changes, rows) for number, changes in numbered]
            judged.sort(key=lambda trial: (-trial.score, trial.trial))
            keep = max(1, round(len(judged) * share)) if share else 0
            done += judged[keep:]
            numbered = [(trial.trial, trial.changes) for trial in judged[:keep]]
        return done

    def _trial(self, number: int, changes: Changes, rows: float) -> SearchTrial:
        recipe = applied(self.recipe, changes)
        data = recipe.data.model_copy(
            update={
                "rows_per_task": max(10, round(recipe.data.rows_per_task * rows)),
                "max_rows": max(100, round(recipe.data.max_rows * rows)),
            }
        )
        split = recipe.split.model_copy(update={"folds": recipe.search.inner_folds})
        recipe = recipe.model_copy(update={"data": data, "split": split, "seed": self.seed})
        fitted = cross_fit(
            self.table, recipe, networks=self.networks, keep_all=False, threads=self.threads
        )
        self.fits += len(fitted.members)
        self.step.advance(len(fitted.members))
        return SearchTrial(number, changes, self._score(fitted.predictions(self.table)), rows)

    def _score(self, predictions: Floats) -> float:
        """Mean over left-out tasks of the mean of top-1, top-5 and pairwise accuracy."""
        judged = judge(self.table, predictions, self.table.judged_records(self.recipe.data))
        scores = [np.nanmean([t.metrics.top1, t.metrics.top5, t.metrics.pairwise]) for t in judged]
        return float(np.mean(scores)) if scores else float("-inf")


def search_recipe(
    dataset: Dataset,
    recipe: Recipe,
    budget: TrialBudget,
    *,
    task_ids: list[str] | None = None,
    threads: int | Cluster | None = None,
    progress: Progress = SILENT,
) -> tuple[Recipe, SearchResult]:
    """Search a recipe's parameters; returns the found recipe and the result of the search.

    Raises ``RecipeError`` for a recipe or search space that cannot be used, and ``DatasetError``
    for too few workloads or candidates.
    """
    check_recipe(recipe, "throughput")
    started = time.perf_counter()
    space = space_of(recipe)
    here = available_processors() if threads is None or isinstance(threads, Cluster) else threads
    table, _ = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    networks = networks_of(dataset, table.task_ids)
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
            seed = recipe.seed + 1 + number
            search = _Search(inside, recipe, own, threads, seed, step, networks)
            found, best, _ = search.run()
            enough = inside.good_counts() >= recipe.data.min_records
            rows = np.flatnonzero(inside.good & enough[inside.task])
            for chosen, into in ((found, nested), (recipe, plain)):
                ensemble = fit_ensemble(inside, rows, chosen, threads=here)
                into[held] = ensemble.predict(table.features[held])
            fits += search.fits + 2
            picked.append(best.picked())
            step.advance(2, note=f"part {number + 1} of {len(numbers)}")
        last = _Search(table, recipe, own, threads, recipe.seed, step, networks)
        found, best, trials = last.run()
    wanted = table.judged_records(recipe.data)
    judged, stands = judge(table, nested, wanted), judge(table, plain, wanted)
    if not judged:
        raise DatasetError("no task has enough good candidates to be judged", where=dataset.path)
    return found, SearchResult(
        budget=asdict(budget),
        space={name: values.model_dump() for name, values in space.items()},
        fits=fits + last.fits,
        outer_folds=len(numbers),
        inner_folds=recipe.search.inner_folds,
        nested=summarize_all(judged, seed=recipe.seed),
        as_it_stands=summarize_all(stands, seed=recipe.seed),
        ahead=difference(judged, stands, recipe.seed),
        picked_by_part=picked,
        picked=best.picked(),
        trials=[asdict(trial) for trial in trials],
        seconds=time.perf_counter() - started,
    )
