"""``toolkit train``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from toolkit.cli.commands.evaluate import (
    evaluate,
    show_mutation,
    show_number,
    show_throughput,
    show_validity,
)
from toolkit.cli.common import (
    THREADS_MAX,
    BarProgress,
    DatasetDir,
    Json,
    command,
    out,
    print_json,
)
from toolkit.workspace import Workspace

Recipe = Annotated[
    str | None,
    typer.Option("--recipe", help="Name of a bundled recipe, or a TOML file (default: the kind)."),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Model folder (default: tuning/models/<kind>).")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, max=THREADS_MAX, help="Processors to use (default: all allowed)."
    ),
]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = typer.Typer(help="Train a model on the dataset's tasks.", no_args_is_help=True)
    group.command("throughput")(throughput)
    group.command("mutation")(mutation)
    group.command("validity")(validity)
    app.add_typer(group, name="train")
    app.command("evaluate")(evaluate)


@command
def throughput(
    dataset: DatasetDir = None,
    recipe: Recipe = None,
    out_dir: Out = None,
    threads: Threads = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET",
            help="Search the recipe's parameters first: 20 trials, or 300s for so many seconds.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a throughput model and judge it on tasks that it never saw.

    Example: toolkit train throughput --recipe throughput-xgboost
    """
    from toolkit.datasets import open_dataset
    from toolkit.training import load_recipe, train_throughput

    chosen = load_recipe(recipe or "throughput")
    folder = out_dir or Workspace().model("throughput")
    data = open_dataset(dataset or Workspace().dataset)
    searched: Mapping[str, Any] = {}
    if search is not None:
        chosen, searched = _searched(data, chosen, search, threads)
    result = train_throughput(data, chosen, folder, threads=threads, progress=BarProgress())
    if searched:
        kept = {**searched, "recipe": _keep_recipe(chosen, folder, search)}
        result = replace(result, search=kept)
    if as_json:
        print_json(result)
        return
    show_throughput(result)
    _show_cores(result)
    if searched:
        show_search(kept)
    out.print(f"model: {folder}", highlight=False)


def _searched(
    data: Any, recipe: Any, budget: str, threads: int | None
) -> tuple[Any, Mapping[str, Any]]:
    from toolkit.training.tasks.hyper import parse_budget, search_recipe

    return search_recipe(
        data, recipe, parse_budget(budget), threads=threads, progress=BarProgress()
    )


def _keep_recipe(recipe: Any, folder: Path, budget: str | None) -> str:
    """Write the found recipe beside its model."""
    from toolkit.training.recipes.recipe import recipe_toml

    path = folder / "recipe.toml"
    comment = f"Found by: toolkit train throughput --search {budget}"
    path.write_text(recipe_toml(recipe, comment), encoding="utf-8")
    return str(path)


def show_search(result: Mapping[str, Any]) -> None:
    """Print what the search found, judged by tasks it never saw, beside the recipe as it was."""
    from rich.table import Table

    nested, stands = result["nested"], result["as_it_stands"]
    table = Table(title=f"the search, judged by tasks that it never saw ({result['fits']} fits)")
    for heading in ("metric", "searched", "95 % interval", "recipe as it was", "ahead"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name in ("top1", "top5", "pairwise"):
        low, high = nested[f"{name}_interval"]
        between = result["ahead"][f"{name}_interval"]
        table.add_row(
            name,
            show_number(nested[name]),
            f"{show_number(low)} to {show_number(high)}",
            show_number(stands[name]),
            f"{between[0]:+.3f} to {between[1]:+.3f}",
        )
    out.print(table)
    out.print(f"found: {result['picked']['changes'] or 'nothing better than the recipe as it was'}")
    out.print(f"recipe: {result['recipe']}", highlight=False)


@command
def mutation(
    dataset: DatasetDir = None,
    recipe: Recipe = None,
    out_dir: Out = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a mutation-direction model and judge it on tasks that it never saw.

    Example: toolkit train mutation --recipe paper-mutation
    """
    from toolkit.training import train_mutation

    _train("mutation", train_mutation, show_mutation, dataset, recipe, out_dir, threads, as_json)


@command
def validity(
    dataset: DatasetDir = None,
    recipe: Recipe = None,
    out_dir: Out = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model of which candidates fail and judge it on tasks that it never saw.

    Example: toolkit train validity --recipe validity
    """
    from toolkit.training import train_validity

    _train("validity", train_validity, show_validity, dataset, recipe, out_dir, threads, as_json)


def _train(
    kind: str,
    train: Callable[..., Mapping[str, Any]],
    show: Callable[[Mapping[str, Any]], None],
    dataset: Path | None,
    recipe: str | None,
    out_dir: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Train a model of a kind by its recipe, and print how it was judged."""
    from toolkit.datasets import open_dataset
    from toolkit.training import load_recipe

    chosen = load_recipe(recipe or kind)
    folder = out_dir or Workspace().model(kind)
    data = open_dataset(dataset or Workspace().dataset)
    result = train(data, chosen, folder, threads=threads, progress=BarProgress())
    if as_json:
        print_json(result)
        return
    show(result)
    _show_cores(result)
    out.print(f"model: {folder}", highlight=False)


def _show_cores(result: Mapping[str, Any]) -> None:
    from toolkit.training.table.cores import told_cores

    for line in told_cores(result["cores"]):
        out.print(line, highlight=False)
