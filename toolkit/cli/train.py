"""``toolkit train`` and ``toolkit evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toolkit.cli.common import BarProgress, DatasetDir, Json, command, out, print_json
from toolkit.workspace import Workspace

Recipe = Annotated[
    str | None,
    typer.Option("--recipe", help="Name of a bundled recipe, or a TOML file (default: the kind)."),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Model folder (default: tuning/models/<kind>).")
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Processors to use (default: all allowed).")
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
    result = train_throughput(data, chosen, folder, threads=threads, progress=BarProgress())
    if as_json:
        print_json(result)
        return
    show_throughput(result)
    out.print(f"model: {folder}", highlight=False)


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
    from toolkit.datasets import open_dataset
    from toolkit.training import load_recipe, train_mutation

    chosen = load_recipe(recipe or "mutation")
    folder = out_dir or Workspace().model("mutation")
    data = open_dataset(dataset or Workspace().dataset)
    result = train_mutation(data, chosen, folder, threads=threads, progress=BarProgress())
    if as_json:
        print_json(result)
        return
    show_mutation(result)
    out.print(f"model: {folder}", highlight=False)


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
    from toolkit.datasets import open_dataset
    from toolkit.training import load_recipe, train_validity

    chosen = load_recipe(recipe or "validity")
    folder = out_dir or Workspace().model("validity")
    data = open_dataset(dataset or Workspace().dataset)
    result = train_validity(data, chosen, folder, threads=threads, progress=BarProgress())
    if as_json:
        print_json(result)
        return
    show_validity(result)
    out.print(f"model: {folder}", highlight=False)


@command
def evaluate(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    dataset: DatasetDir = None,
    as_json: Json = False,
) -> None:
    """Judge a trained model on a dataset, each task by a member that never saw it.

    Example: toolkit evaluate tuning/models/throughput --dataset tuning/dataset
    """
    from toolkit.datasets import open_dataset
    from toolkit.training import evaluate_model

    data = open_dataset(dataset or Workspace().dataset)
    result = evaluate_model(model, data, progress=BarProgress())
    if as_json:
        print_json(result)
        return
    shows = {"mutation": show_mutation, "validity": show_validity}
    shows.get(str(result.get("kind")), show_throughput)(result)


def show_throughput(result: dict[str, Any]) -> None:
    """Print a short table of metrics beside the constant predictor's and the noise ceiling's."""
    from rich.table import Table

    constant = result.get("baseline_constant", {})
    ceiling = result.get("noise_ceiling", {})
    table = Table(title=f"{result['n_test_tasks']} tasks never seen in training")
    for heading in ("metric", "model", "95 % interval", "constant", "noise ceiling"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name in ("top1", "top5", "pairwise", "spearman", "median_to_1pct"):
        low, high = result.get(f"{name}_interval", (None, None))
        table.add_row(
            name,
            _number(result.get(name)),
            "" if low is None else f"{_number(low)} to {_number(high)}",
            _number(constant.get(name)),
            _number(ceiling.get(name)),
        )
    out.print(table)


def show_mutation(result: dict[str, Any]) -> None:
    """Print shares of the oracle's gain at each level, beside the baselines."""
    from rich.table import Table

    table = Table(title=f"{result['n_test_tasks']} tasks never seen in training")
    for heading in ("choice of", "accuracy", "gain share", "95 % interval", "base rate", "TVM"):
        table.add_column(heading, justify="left" if heading == "choice of" else "right")
    levels = {result["level"]: result, **result.get("levels", {})}
    for level, found in levels.items():
        if "gain_share" not in found:
            continue
        low, high = found["gain_share_interval"]
        table.add_row(
            level,
            _number(found["accuracy"]),
            _number(found["gain_share"]),
            f"{_number(low)} to {_number(high)}",
            _number(found["gain_share_base_rate"]),
            _number(found["gain_share_fixed_weights"]),
        )
    out.print(table)


def show_validity(result: dict[str, Any]) -> None:
    """Print how well failures were foreseen, beside what the base rate alone gives."""
    from rich.table import Table

    table = Table(title=f"{result['n_test_tasks']} tasks never seen in training")
    for heading in ("metric", "model", "95 % interval", "base rate"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    known = {
        "auc": 0.5,
        "average_precision": result["average_precision_base_rate"],
        "brier": result["brier_base_rate"],
    }
    for name in ("auc", "average_precision", "brier", "calibration_error", "avoided", "lost"):
        low, high = result[f"{name}_interval"]
        interval = f"{_number(low)} to {_number(high)}"
        table.add_row(name, _number(result[name]), interval, _number(known.get(name)))
    out.print(table)


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else ""
