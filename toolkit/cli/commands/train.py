"""``toolkit train``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from typer import BadParameter, Option

from toolkit.cli import common
from toolkit.cli.commands.evaluate import SHOWN, print_metrics
from toolkit.cli.mlflow_option import MlflowPlace, told
from toolkit.cli.tables import low_to_high, out, say
from toolkit.show import percent
from toolkit.workspace import Workspace

Recipe = Annotated[
    str | None,
    Option("--recipe", help="Name of a bundled recipe, or a TOML file (default: the kind)."),
]
Out = Annotated[Path | None, common.OutOption(help="Model folder (default: tuning/models/<kind>).")]
Processors = Annotated[
    int | None,
    Option(
        "--threads", min=1, max=common.THREADS_MAX, help="Processors to use (default: all allowed)."
    ),
]
Split = Annotated[
    str | None,
    Option(
        metavar="BY",
        help="What cross-validation leaves out together: task, family (all operators of a kind), "
        "network or machine (default: as the recipe says).",
    ),
]


def throughput(
    dataset: common.DatasetDir = None,
    recipe: Recipe = None,
    split: Split = None,
    out_dir: Out = None,
    threads: Processors = None,
    cluster: common.ClusterPlace = None,
    search: Annotated[
        str | None,
        Option(
            metavar="BUDGET",
            help="First search the recipe's parameters: 20 (trials) or 300s (seconds).",
        ),
    ] = None,
    mlflow: MlflowPlace = None,
    as_json: common.Json = False,
) -> None:
    """Train a throughput model and judge it on tasks that it never saw.

    Example: toolkit train throughput --recipe throughput-xgboost
    """
    places = (dataset, recipe, split, out_dir, threads, cluster, mlflow)
    _train("throughput", *places, as_json, search)


def mutation(
    dataset: common.DatasetDir = None,
    recipe: Recipe = None,
    split: Split = None,
    out_dir: Out = None,
    threads: Processors = None,
    cluster: common.ClusterPlace = None,
    mlflow: MlflowPlace = None,
    as_json: common.Json = False,
) -> None:
    """Train a mutation-direction model and judge it on tasks that it never saw.

    Example: toolkit train mutation --recipe paper-mutation
    """
    _train("mutation", dataset, recipe, split, out_dir, threads, cluster, mlflow, as_json)


def validity(
    dataset: common.DatasetDir = None,
    recipe: Recipe = None,
    split: Split = None,
    out_dir: Out = None,
    threads: Processors = None,
    cluster: common.ClusterPlace = None,
    mlflow: MlflowPlace = None,
    as_json: common.Json = False,
) -> None:
    """Train a model that says which candidates fail; judge it on tasks that it never saw.

    Example: toolkit train validity --recipe validity
    """
    _train("validity", dataset, recipe, split, out_dir, threads, cluster, mlflow, as_json)


def _train(
    kind: str,
    dataset: Path | None,
    recipe: str | None,
    split: str | None,
    out_dir: Path | None,
    threads: int | None,
    cluster: str | None,
    mlflow: str | None,
    as_json: bool,
    search: str | None = None,
) -> None:
    """Train a model by its recipe, after a search if requested; print how it was judged."""
    from toolkit import training
    from toolkit.training.recipes.recipe import SplitBy, neighbourhood_of, recipe_toml
    from toolkit.training.table.cores import told_cores

    chosen = training.load_recipe(recipe or kind)
    if split is not None:
        known = get_args(SplitBy)
        if split not in known:
            raise BadParameter(f"{split!r} is not one of {', '.join(known)}", param_hint="--split")
        by_split = chosen.split.model_copy(update={"by": split})
        chosen = chosen.model_copy(update={"split": by_split})
    folder = out_dir or Workspace().model(kind)
    data = common.opened_dataset(dataset)
    bars = common.BarProgress()
    found: Mapping[str, Any] = {}
    options = {"threads": threads, "cluster": cluster, "search": search}
    with (
        told(mlflow, "training", data, chosen, folder, params=options, progress=bars) as told_of,
        common.workers_or_cluster(threads, cluster, bars) as workers,
    ):
        progress, log = told_of
        steps: dict[str, Any] = {"threads": workers, "progress": progress}
        if search is not None:
            from toolkit.training.tasks.hyper import parse_budget, search_recipe
            from toolkit.training.trained.store import check_folder

            check_folder(folder)
            chosen, found = search_recipe(data, chosen, parse_budget(search), **steps)
        result = getattr(training, f"train_{kind}")(data, chosen, folder, **steps)
        if found:
            path = folder / "recipe.toml"
            comment = f"Found by: toolkit train throughput --search {search}"
            path.write_text(recipe_toml(chosen, comment), encoding="utf-8")
            result = {**result, "search": {**found, "recipe": str(path)}}
        log(result)

    def show(result: Mapping[str, Any]) -> None:
        SHOWN[kind](result)
        if any(model.neighbourhood != "any" for model in chosen.models):
            recorded = result["recorded_share"]
            say(
                f"{percent(recorded)} of directions have a recorded neighbour: "
                f"used the recipe's models for a {neighbourhood_of(recorded)} neighbourhood"
            )
        for line in told_cores(result["cores"]):
            say(line)
        if found:
            _show_search(result["search"])
        say(f"model: {folder}")

    common.answer(result, as_json, show)


def _show_search(result: Mapping[str, Any]) -> None:
    """Print what the search found, judged by tasks it never saw, and compared with the recipe."""
    names = ("top1", "top5", "pairwise")
    print_metrics(
        f"the search, judged by tasks that it never saw ({result['fits']} fits)",
        names,
        result["nested"],
        "searched",
        recipe_as_it_was=result["as_it_stands"],
        ahead={name: low_to_high(result["ahead"][f"{name}_interval"], "+.3f") for name in names},
    )
    out.print(f"found: {result['picked']['changes'] or 'nothing better than the recipe as it was'}")
    say(f"recipe: {result['recipe']}")
