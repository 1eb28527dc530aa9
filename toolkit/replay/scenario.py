"""Scenarios of a replay: one TOML file each, checked before anything runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from toolkit.errors import RecipeError, did_you_mean
from toolkit.records import content_id
from toolkit.registry import Registry
from toolkit.replay.record.table import CostModel
from toolkit.search import STRATEGIES
from toolkit.search.schedulers import SCHEDULERS
from toolkit.toml_file import Settings, checked, read_toml
from toolkit.workspace import bundled, is_name

MOST = 1_000_000
"""Largest batch or number of evaluations: more would run for days without a result."""


def _known(registry: Registry, name: str) -> str:
    if name not in registry.names():
        near = did_you_mean(name, registry.names())
        raise ValueError(f"no {registry.role} is called {name!r}: {near}")
    return name


Count = Annotated[int, Field(ge=1, le=MOST)]
Positive = Annotated[int, Field(ge=1)]
SchedulerName = Annotated[str, AfterValidator(partial(_known, SCHEDULERS))]
StrategyName = Annotated[str, AfterValidator(partial(_known, STRATEGIES))]


class TaskChoice(Settings):
    """Which tasks of the dataset are replayed."""

    ids: tuple[str, ...] = Field(
        default=(), strict=False, description="Task ids; all that fit when empty."
    )
    enumerated_only: bool = Field(default=False, description="Only completely enumerated tasks.")
    minimum_candidates: Positive = Field(
        default=30, description="Distinct good candidates that a task needs."
    )
    largest: Positive | None = Field(
        default=None, description="Only so many tasks, those with most candidates."
    )


class BudgetChoice(Settings):
    """What a run may spend; the whole record when neither is given."""

    evaluations: Count | None = None
    seconds: float | None = Field(default=None, gt=0)


class StrategyChoice(Settings):
    """One line of the comparison: a strategy and its options."""

    name: StrategyName
    label: str = Field(default="", description="Name in the results; the strategy's by default.")
    options: dict[str, Any] = Field(default_factory=dict)
    batch_size: Count | None = Field(default=None, description="In place of the scenario's.")

    @model_validator(mode="after")
    def _labelled(self) -> StrategyChoice:
        if not self.label:
            object.__setattr__(self, "label", self.name)
        return self


class NetworkChoice(Settings):
    """Tune the tasks of a network together: the first strategy searches each of them."""

    by: str = Field(default="network", description="Label of the sources that names the network.")
    schedulers: tuple[SchedulerName, ...] = Field(
        default=("round-robin", "gradient", "bandit"), strict=False
    )
    options: dict[SchedulerName, dict[str, Any]] = Field(
        default_factory=dict, description="Options by scheduler."
    )
    round_size: Count = Field(default=16, description="Measurements that a task gets at once.")
    rounds_per_task: Count = Field(
        default=10, description="Rounds for each task of a network, where no budget is given."
    )


class Scenario(Settings):
    """A replay in one file: tasks, strategies, budget, seeds, and what happens to misses."""

    name: str
    description: str = ""
    tasks: TaskChoice = TaskChoice()
    strategies: tuple[StrategyChoice, ...] = Field(alias="strategy", strict=False)
    budget: BudgetChoice = BudgetChoice()
    network: NetworkChoice | None = None
    batch_size: Count = 64
    seeds: int = Field(
        default=5, ge=1, le=10_000, description="Seeds 0 to n - 1; paired across strategies."
    )
    baseline: str = Field(default="random", description="Label that the others are compared with.")
    missing: Literal["skip", "error", "nearest"] = "skip"
    measuring_workers: int = Field(default=1, ge=1, le=10_000)
    count_strategy_time: bool = False
    stop_at_best: bool = Field(
        default=True,
        description="End a run once it measured the best recorded candidate: no best can change.",
    )
    cost: CostModel = CostModel()
    resamples: int = Field(default=1000, ge=100, le=100_000, description="Bootstrap resamples.")
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        if not is_name(self.name):
            raise ValueError(f"{self.name!r} is no name for a folder: use letters, digits, - and _")
        labels = [choice.label for choice in self.strategies]
        if not labels:
            raise ValueError("a scenario needs at least one [[strategy]]")
        double = {label for label in labels if labels.count(label) > 1}
        if double:
            raise ValueError(f"two strategies have the label {sorted(double)[0]!r}: set 'label'")
        if "baseline" in self.model_fields_set and self.baseline not in labels:
            near = did_you_mean(self.baseline, labels)
            raise ValueError(f"no strategy is labelled {self.baseline!r} (baseline): {near}")
        return self

    @property
    def labels(self) -> list[str]:
        """Labels of the strategies, in the file's order."""
        return [choice.label for choice in self.strategies]

    def fingerprint(self) -> str:
        """Hash of everything that the numbers depend on (not name and description)."""
        return content_id(self.model_dump_json(exclude={"name", "description"}, by_alias=True))


def load_scenario(name_or_file: str | Path) -> Scenario:
    """Read a bundled scenario by name, or any by its path.

    Raises ``RecipeError`` if there is none, or if a field is wrong (with the field and the cure).
    """
    path = Path(name_or_file)
    if path.suffix != ".toml":
        folder = bundled("replay")
        path = folder / f"{name_or_file}.toml"
        if not path.is_file():
            known = [p.stem for p in folder.glob("*.toml")]
            raise RecipeError(
                f"no scenario is called {str(name_or_file)!r}",
                cure="a file's name must end in .toml; " + did_you_mean(str(name_or_file), known),
            )
    return parse_scenario({"name": path.stem, **read_toml(path)}, where=path)


def parse_scenario(content: dict[str, Any], *, where: str | Path | None = None) -> Scenario:
    """Check a scenario given as a mapping; raise ``RecipeError`` naming the first wrong field."""
    return checked(Scenario, content, where=where)
