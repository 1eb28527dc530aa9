"""Training recipes: data, features, model, split and seed in one small TOML file.

A recipe is the name of a bundled one (folder ``training/``) or the path of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from toolkit.errors import RecipeError, did_you_mean
from toolkit.records import SEED_MAX
from toolkit.toml_file import Settings, checked, read_toml
from toolkit.workspace import bundled


class DataOptions(Settings):
    """Which candidates are trained and judged on."""

    min_records: int = Field(10, ge=2, description="good candidates a task needs to be trained on")
    judged_records: int = Field(100, ge=2, description="good candidates a task needs to be judged")
    rows_per_task: int = Field(
        1000,
        ge=10,
        description="at most this many candidates of a task are trained on: the fastest fifth and "
        "a random sample of the rest, each weighted by how many it stands for",
    )
    max_rows: int = Field(200_000, ge=100, description="at most this many rows in all, likewise")
    table_rows: int = Field(
        500_000,
        ge=1000,
        description="approximate maximum of candidates held in memory and judged; large tasks "
        "keep the fastest and a random sample of the others",
    )


SplitBy = Literal["task", "family", "network", "machine"]


class SplitOptions(Settings):
    """How tasks are split into folds; only by machine can a workload be in two folds."""

    by: SplitBy = Field(
        "task",
        description="what is left out together; family: all operators of a kind (convolutions, "
        "products, reductions, ...)",
    )
    folds: Annotated[int, Field(ge=2)] | Literal["auto"] = Field(
        "auto", description="number of folds; auto: leave one out while that is cheap, else 10"
    )
    leave_one_out: int = Field(
        40, ge=0, description="auto leaves one out up to this many workloads"
    )
    leave_one_out_rows: int = Field(
        30_000, ge=0, description="auto leaves one out up to this many training rows"
    )


FEW_ROWS_FITS = 3
"""Fits that ``seeds = "auto"`` averages where there are few rows."""


DENSE = 0.5
"""A ``neighbourhood`` with at least this share of directions recorded is dense."""


class ModelOptions(Settings):
    """One member of the ensemble."""

    library: str = Field(
        description="lightgbm, xgboost, network, hybrid, statements, ridge, or a plug-in's name"
    )
    target: Literal["log_speed", "speed", "rank", "top_rank"] = Field(
        "log_speed",
        description="log of relative throughput, relative throughput, its rank in the task, or "
        "minus the log of the share of candidates that are faster",
    )
    objective: Literal["squared", "pairwise", "lambdarank", "logistic", "neighbours", "gains"] = (
        Field(
            "squared",
            description="logistic: only for validity models. For mutation models of the method "
            "expected: neighbours learns differences between candidates one decision apart; "
            "gains learns the gains of directions, as the method direct does",
        )
    )
    rounds: int = Field(
        300, ge=1, le=100_000, description="boosting rounds; a network's passes over the rows"
    )
    early_stopping: int = Field(
        0,
        ge=0,
        description="stop after this many rounds without gain on a held-out eighth of the training "
        "tasks, then fit the best number of rounds to all of them; 0: never",
    )
    params: dict[str, float | int | str | bool] = Field(
        default_factory=dict, description="the library's own parameters"
    )
    seeds: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = Field(
        1,
        description="number of fits with different seeds to average; auto: three if together "
        "they see no more rows than data.max_rows, else one",
    )
    weight: float = Field(1.0, gt=0, le=1e6)
    min_tasks: int = Field(
        0, ge=0, description="left out if fewer tasks are trained on, unless all models would be"
    )
    neighbourhood: Literal["any", "dense", "sparse"] = Field(
        "any",
        description="for mutation models: dense is left out if less than half of the candidates' "
        "directions have a recorded neighbour, sparse if more have one",
    )
    emphasis: float = Field(
        0.0, ge=0, le=100, description="weight of a row is relative throughput to this power"
    )


class MutationOptions(Settings):
    """What a mutation model predicts, and how."""

    method: Literal["expected", "direct", "classifier"] = Field(
        "expected",
        description="expected: a throughput model averaged over the values a knob can take; "
        "direct: gains learned from recorded neighbours; classifier: the best rule (Han et al.)",
    )
    level: Literal["knob", "rule", "way"] = Field(
        "knob", description="what the headline figures choose between"
    )
    tie: float = Field(
        0.0, ge=0, description="gains closer than this are equal; 0: from the noise of repeats"
    )


class Range(Settings):
    """Values that a parameter may take in a search; ``log``: drawn evenly in the logarithm."""

    low: float
    high: float
    log: bool = False
    integer: bool = False


class SearchOptions(Settings):
    """How ``toolkit train throughput --search`` looks for parameters."""

    outer_folds: int = Field(
        4, ge=2, le=1000, description="folds of tasks for the reported figures"
    )
    inner_folds: int = Field(
        3, ge=2, le=1000, description="folds of the other tasks for judging trials"
    )
    space: dict[str, Range] = Field(
        default_factory=dict,
        description="ranges of rounds, emphasis or the library's parameters; empty: its default",
    )


class Recipe(Settings):
    """A whole recipe."""

    kind: Literal["throughput", "mutation", "validity"]
    extractor: str = Field("auto", description="an extractor's name; auto: the task's best one")
    seed: int = Field(0, ge=0, le=SEED_MAX)
    device: Literal["cpu", "cuda"] = "cpu"
    data: DataOptions = DataOptions()  # type: ignore[call-arg]
    split: SplitOptions = SplitOptions()  # type: ignore[call-arg]
    mutation: MutationOptions = MutationOptions()  # type: ignore[call-arg]
    validity: str | None = Field(
        None, description="a validity recipe that 'train throughput' trains as well"
    )
    search: SearchOptions = SearchOptions()  # type: ignore[call-arg]
    models: tuple[ModelOptions, ...] = Field(min_length=1, strict=False)

    def models_for(self, tasks: int) -> tuple[ModelOptions, ...]:
        """Return the models that are fitted to this many tasks; all if none would be left."""
        return tuple(m for m in self.models if m.min_tasks <= tasks) or self.models

    def for_neighbours(self, recorded: float) -> Recipe:
        """Return the recipe without the models that are for other neighbourhoods.

        ``recorded`` is the share of directions that have a recorded neighbour. Where no model would
        be left, all stay.
        """
        kept = ("any", neighbourhood_of(recorded))
        models = tuple(model for model in self.models if model.neighbourhood in kept)
        return self.model_copy(update={"models": models or self.models})

    def fits_of(self, model: ModelOptions, rows: int) -> int:
        """Return how many fits of a model to this many rows are averaged.

        ``seeds = "auto"`` gives several if together they see no more rows than ``data.max_rows``.
        """
        if model.seeds != "auto":
            return model.seeds
        return FEW_ROWS_FITS if FEW_ROWS_FITS * rows <= self.data.max_rows else 1


def neighbourhood_of(recorded: float) -> Literal["dense", "sparse"]:
    """Name a neighbourhood by the share of directions that have a recorded neighbour, 0 to 1."""
    return "dense" if recorded >= DENSE else "sparse"


def recipe_names() -> list[str]:
    """Names of the bundled recipes."""
    return sorted(path.stem for path in bundled("training").glob("*.toml"))


def load_recipe(name: str | Path) -> Recipe:
    """Read a bundled recipe by name or any recipe by path; raise ``RecipeError`` if that fails."""
    path = Path(name)
    if path.suffix != ".toml":
        path = bundled("training") / f"{name}.toml"
        if not path.is_file():
            raise RecipeError(
                f"no training recipe is called {str(name)!r}",
                cure=did_you_mean(str(name), recipe_names()),
            )
    cure = "docs/how-to/train.md lists the fields"
    return checked(Recipe, read_toml(path), where=path, cure=cure)


def recipe_toml(recipe: Recipe, comment: str = "") -> str:
    """Return a recipe as TOML that ``load_recipe`` reads back, after the lines of ``comment``."""
    content = recipe.model_dump(mode="json", exclude_defaults=True)
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    models = content.pop("models")
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    lines += [f"{key} = {_value(v)}" for key, v in content.items() if key not in tables]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *_pairs(table)]
    for model in models:
        lines += ["", "[[models]]", *_pairs(model)]
    return "\n".join(lines) + "\n"


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    plain = key.replace("_", "").replace("-", "")
    return key if plain.isascii() and plain.isalnum() else orjson.dumps(key).decode()


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return orjson.dumps(value).decode()
