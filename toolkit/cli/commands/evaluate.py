"""``toolkit evaluate``, and how the metrics of a model are shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from toolkit.cli.common import BarProgress, DatasetDir, Json, command, out, print_json
from toolkit.workspace import Workspace


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
    result: Mapping[str, Any]
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


def show_throughput(result: Mapping[str, Any]) -> None:
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
            show_number(result.get(name)),
            "" if low is None else f"{show_number(low)} to {show_number(high)}",
            show_number(constant.get(name)),
            show_number(ceiling.get(name)),
        )
    out.print(table)


def show_mutation(result: Mapping[str, Any]) -> None:
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
            show_number(found["accuracy"]),
            show_number(found["gain_share"]),
            f"{show_number(low)} to {show_number(high)}",
            show_number(found["gain_share_base_rate"]),
            show_number(found["gain_share_fixed_weights"]),
        )
    out.print(table)
    # The ceilings are those of knobs: noise bounds every model, the draw those that are not told
    # which values were recorded.
    parts = [
        f"{name} {show_number(result[key])}"
        for name, key in (
            ("noise", "gain_share_ceiling"),
            ("blind", "gain_share_blind_ceiling"),
            ("told half", "gain_share_told_half"),
        )
        if result.get(key) is not None
    ]
    if parts:
        out.print("ceilings of the gain share (knob): " + ", ".join(parts), highlight=False)


def show_validity(result: Mapping[str, Any]) -> None:
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
        interval = f"{show_number(low)} to {show_number(high)}"
        table.add_row(name, show_number(result[name]), interval, show_number(known.get(name)))
    out.print(table)


def show_transfer(result: Mapping[str, Any]) -> None:
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
                show_number(metrics[name]),
                f"{show_number(low)} to {show_number(high)}",
                show_number(result["from_scratch"].get(number, {}).get(name)),
                "" if between is None else f"{between[0]:+.3f} to {between[1]:+.3f}",
            )
    out.print(table)


def show_number(value: Any) -> str:
    """Three decimals; nothing for what is unknown."""
    return f"{value:.3f}" if isinstance(value, float) else ""
