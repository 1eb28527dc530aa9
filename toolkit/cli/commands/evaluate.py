"""``toolkit evaluate``, and functions that print a model's metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from toolkit.cli import common
from toolkit.cli.tables import decimals, low_to_high, print_table, say

Metrics = Mapping[str, Any]


def evaluate(
    model: Annotated[
        Path, typer.Argument(parser=common.folder_at, help="Model folder, or its URL.")
    ],
    dataset: common.DatasetDir = None,
    transfer: Annotated[
        str | None,
        Option(
            metavar="NUMBERS",
            help="Judge a throughput model before and after adapting it with this many records per "
            "judged task, as in 0,16,64.",
        ),
    ] = None,
    transfer_from: Annotated[
        str, Option(help="Records of: task (the judged one), machine (its other tasks).")
    ] = "task",
    machine: Annotated[str | None, Option(help="Judge only tasks of this machine.")] = None,
    as_json: common.Json = False,
) -> None:
    """Judge a trained model on a dataset; each task is predicted by a member that never saw it.

    Example: toolkit evaluate tuning/models/throughput --dataset other/dataset --transfer 0,16,64
    """
    from toolkit.training import evaluate_model, load_throughput
    from toolkit.training.tasks.transfer import evaluate_transfer

    if transfer_from not in ("task", "machine"):
        raise typer.BadParameter(f"--transfer-from {transfer_from!r}: give task or machine")
    data = common.opened_dataset(dataset)
    own = None if machine is None else _tasks_of(data, machine)
    result: Metrics
    if transfer is None:
        result = evaluate_model(model, data, task_ids=own, progress=common.BarProgress())
    else:
        loaded = load_throughput(model)
        records = common.whole_numbers(transfer, "numbers such as 0,16,64")
        of: Any = transfer_from
        result = evaluate_transfer(
            loaded, data, records=records, of=of, task_ids=own, progress=common.BarProgress()
        )
    common.answer(result, as_json, SHOWN.get(str(result.get("kind")), show_throughput))


def _tasks_of(data: Any, machine: str) -> list[str]:
    from toolkit.errors import DatasetError, did_you_mean

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


def print_metrics(
    title: str, names: Sequence[str], found: Metrics, head: str = "model", **others: Metrics
) -> None:
    """Print one row per metric: its value, its interval, and its value for each of the others."""
    print_table(
        {
            "metric": str,
            f">{head}": lambda name: decimals(found.get(name)),
            ">95 % interval": lambda name: low_to_high(found.get(f"{name}_interval")),
            **{f">{other.replace('_', ' ')}": _of(metrics) for other, metrics in others.items()},
        },
        names,
        title=title,
    )


def _of(metrics: Metrics) -> Callable[[str], str]:
    return lambda name: decimals(metrics.get(name))


def _title(result: Metrics) -> str:
    return f"{result['n_test_tasks']} tasks never seen in training"


def show_throughput(result: Metrics) -> None:
    """Print a short table of metrics, compared with a constant and with one measurement.

    The last column ranks candidates by one measurement each. It is no upper bound for a model,
    since the measurement is noisy, too.
    """
    print_metrics(
        _title(result),
        ("top1", "top5", "pairwise", "spearman", "median_to_1pct"),
        result,
        constant=result.get("baseline_constant", {}),
        told_one_measurement=result.get("noise_ceiling", {}),
    )
    families = result.get("families") or {}
    if len(families) > 1:
        print_table(
            {
                "operators": itemgetter(0),
                ">tasks": lambda row: str(row[1]["n_tasks"]),
                ">top1": lambda row: decimals(row[1]["top1"]),
                ">95 % interval": lambda row: low_to_high(row[1]["top1_interval"]),
                ">top5": lambda row: decimals(row[1]["top5"]),
            },
            sorted(families.items(), key=lambda row: row[1]["top1"]),
        )


def show_mutation(result: Metrics) -> None:
    """Print shares of the oracle's gain at each level, compared with the baselines."""
    levels = {result["level"]: result, **result.get("levels", {})}
    print_table(
        {
            "choice of": itemgetter(0),
            ">accuracy": lambda level: decimals(level[1]["accuracy"]),
            ">gain share": lambda level: decimals(level[1]["gain_share"]),
            ">95 % interval": lambda level: low_to_high(level[1]["gain_share_interval"]),
            ">base rate": lambda level: decimals(level[1]["gain_share_base_rate"]),
            ">TVM": lambda level: decimals(level[1]["gain_share_fixed_weights"]),
        },
        [level for level in levels.items() if "gain_share" in level[1]],
        title=_title(result),
    )
    # The ceilings are for knobs. Noise limits every model; the blind ceiling limits models that
    # do not know which values were recorded.
    ceilings = {
        "noise": "gain_share_ceiling",
        "blind": "gain_share_blind_ceiling",
        "told half": "gain_share_told_half",
    }
    known = [
        f"{name} {decimals(result[key])}"
        for name, key in ceilings.items()
        if result.get(key) is not None
    ]
    if known:
        say("ceilings of the gain share (knob): " + ", ".join(known))


def show_validity(result: Metrics) -> None:
    """Print how well failures were predicted, compared with the base rate."""
    known = {name: result[f"{name}_base_rate"] for name in ("average_precision", "brier")}
    names = ("auc", "average_precision", "brier", "calibration_error", "avoided", "lost")
    print_metrics(_title(result), names, result, base_rate={"auc": 0.5, **known})


def show_transfer(result: Metrics) -> None:
    """Print metrics by number of records, compared with a model of these records only."""
    whose = "of each judged task" if result["of"] == "task" else "of the machine's other tasks"
    adapted = result["adapted"]
    alone, gain = (
        {number: result[key].get(number, {}) for number in adapted}
        for key in ("from_scratch", "gain")
    )
    print_table(
        {
            ">records": lambda row: row[0] if row[1] == "top1" else "",
            "metric": itemgetter(1),
            ">adapted": lambda row: decimals(adapted[row[0]][row[1]]),
            ">95 % interval": lambda row: low_to_high(adapted[row[0]][f"{row[1]}_interval"]),
            ">from scratch": lambda row: decimals(alone[row[0]].get(row[1])),
            ">gain": lambda row: low_to_high(gain[row[0]].get(f"{row[1]}_interval"), "+.3f"),
        },
        [(number, name) for number in adapted for name in ("top1", "top5", "pairwise")],
        title=f"{_title(result)}; records {whose}",
    )


SHOWN: dict[str, Callable[[Metrics], None]] = {
    "throughput": show_throughput,
    "mutation": show_mutation,
    "validity": show_validity,
    "transfer": show_transfer,
}
