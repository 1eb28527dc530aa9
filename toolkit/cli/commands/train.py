"""``toolkit train`` and ``toolkit evaluate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

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
    searched: dict[str, Any] = {}
    if search is not None:
        chosen, searched = _searched(data, chosen, search, threads)
    result = train_throughput(data, chosen, folder, threads=threads, progress=BarProgress())
    if searched:
        result["search"] = {**searched, "recipe": _keep_recipe(chosen, folder, search)}
    if as_json:
        print_json(result)
        return
    show_throughput(result)
    _show_cores(result)
    if searched:
        show_search(result["search"])
    out.print(f"model: {folder}", highlight=False)


def _searched(
    data: Any, recipe: Any, budget: str, threads: int | None
) -> tuple[Any, dict[str, Any]]:
    from toolkit.training.tasks.hyper import parse_budget, search_recipe

    return search_recipe(
        data, recipe, parse_budget(budget), threads=threads, progress=BarProgress()
    )


def _keep_recipe(recipe: Any, folder: Path, budget: str | None) -> str:
    """Write the found recipe beside its model."""
    from toolkit.training.recipes.recipe_file import recipe_toml

    path = folder / "recipe.toml"
    comment = f"Found by: toolkit train throughput --search {budget}"
    path.write_text(recipe_toml(recipe, comment), encoding="utf-8")
    return str(path)


def show_search(result: dict[str, Any]) -> None:
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
            _number(nested[name]),
            f"{_number(low)} to {_number(high)}",
            _number(stands[name]),
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
    train: Callable[..., dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
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


def _show_cores(result: dict[str, Any]) -> None:
    from toolkit.training.table.cores import told_cores

    for line in told_cores(result["cores"]):
        out.print(line, highlight=False)


@command
def evaluate(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    dataset: DatasetDir = None,
    transfer: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Judge a throughput model before and after adapting it with so many records of "
            "each judged task, as in 0,16,64.",
        ),
    ] = None,
    transfer_from: Annotated[
        str, typer.Option(help="Whose records: task (the judged one), or machine (its others).")
    ] = "task",
    machine: Annotated[
        str | None, typer.Option(help="Judge only tasks of the machine of this name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge a trained model on a dataset, each task by a member that never saw it.

    Example: toolkit evaluate tuning/models/throughput --dataset other/dataset --transfer 0,16,64
    """
    from toolkit.datasets import open_dataset
    from toolkit.training import evaluate_model, load_throughput
    from toolkit.training.tasks.transfer import evaluate_transfer

    data = open_dataset(dataset or Workspace().dataset)
    own = _tasks_of(data, machine)
    if transfer is not None:
        result = evaluate_transfer(
            load_throughput(model),
            data,
            records=_numbers(transfer),
            of=_source(transfer_from),
            task_ids=own,
            progress=BarProgress(),
        )
    else:
        result = evaluate_model(model, data, task_ids=own, progress=BarProgress())
    if as_json:
        print_json(result)
        return
    shows = {"mutation": show_mutation, "validity": show_validity, "transfer": show_transfer}
    shows.get(str(result.get("kind")), show_throughput)(result)


def _tasks_of(data: Any, machine: str | None) -> list[str] | None:
    from toolkit.errors import DatasetError, did_you_mean

    if machine is None:
        return None
    tasks = data.tasks().values()
    own = [task.task_id for task in tasks if task.machine == machine]
    if not own:
        known = {task.machine for task in tasks if task.machine}
        raise DatasetError(
            f"no task was measured on a machine called {machine!r}",
            where=data.path,
            cure=did_you_mean(machine, known),
        )
    return own


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers such as 0,16,64") from None


def _source(text: str) -> Any:
    if text not in ("task", "machine"):
        raise typer.BadParameter(f"{text!r} is neither task nor machine")
    return text


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
    # The ceilings are those of knobs: noise bounds every model, the draw those that are not told
    # which values were recorded.
    parts = [
        f"{name} {_number(result[key])}"
        for name, key in (
            ("noise", "gain_share_ceiling"),
            ("blind", "gain_share_blind_ceiling"),
            ("told half", "gain_share_told_half"),
        )
        if result.get(key) is not None
    ]
    if parts:
        out.print("ceilings of the gain share (knob): " + ", ".join(parts), highlight=False)


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


def show_transfer(result: dict[str, Any]) -> None:
    """Print metrics by number of records, beside a model of these records alone."""
    from rich.table import Table

    whose = "of each judged task" if result["of"] == "task" else "of the machine's other tasks"
    table = Table(title=f"{result['n_test_tasks']} tasks never seen in training; records {whose}")
    for heading in ("records", "metric", "adapted", "95 % interval", "from scratch", "gain"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for number, metrics in result["adapted"].items():
        for name in ("top1", "top5", "pairwise"):
            low, high = metrics[f"{name}_interval"]
            gain = result["gain"].get(number, {})
            between = gain.get(f"{name}_interval")
            table.add_row(
                number if name == "top1" else "",
                name,
                _number(metrics[name]),
                f"{_number(low)} to {_number(high)}",
                _number(result["from_scratch"].get(number, {}).get(name)),
                "" if between is None else f"{between[0]:+.3f} to {between[1]:+.3f}",
            )
    out.print(table)


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else ""
