"""``toolkit describe``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from toolkit import show
from toolkit.cli.common import DatasetDir, Json, command, out, print_json
from toolkit.workspace import Workspace

WIDE, MIDDLE = 145, 118
"""Widths of a terminal below which columns of the table of tasks are left out."""
KNOBS_SHOWN = 3
SKETCHES_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("describe")(describe)


@command
def describe(
    dataset: DatasetDir = None,
    tasks: Annotated[int, typer.Option(min=0, help="Tasks to list; 0 lists all.")] = 20,
    json: Json = False,
) -> None:
    """Say what the dataset holds, and answer what people ask of a log first.

    How far each task is from converged, what failures cost, how noisy repeats are, which decision
    matters most, which tasks dominate, and what each tuner reached when. Every figure is defined
    in docs/reference/analysis.md.

    Example: toolkit describe --json
    """
    from toolkit.datasets import describe as run
    from toolkit.datasets import open_dataset
    from toolkit.training.table.cores import core_counts

    data = open_dataset(dataset or Workspace().dataset)
    summary = {**run(data), "cores": core_counts(data.tasks().values())}
    if json:
        print_json(summary)
        return
    _show_counts(summary)
    if not summary["tasks"]:
        out.print("next: toolkit ingest LOGS", style="bold")
        return
    _show_tasks(summary, tasks)
    _show_verdicts(summary)
    _show_failures(summary)
    _show_noise(summary["noise"])
    _show_knobs(summary["knobs"])
    if summary["tuners"] is not None:
        _show_tuners(summary["tuners"])
    if summary["failed"] < summary["records"]:
        out.print("next: toolkit train throughput", style="bold")


def _show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], elastic: int | None = None
) -> None:
    """Print a table without lines; the elastic column is cut to what the terminal leaves it.

    Columns whose name begins with ``<`` are words, the others numbers; the first is always words.
    """
    from rich.table import Table
    from rich.text import Text

    if title:
        _print(f"\n{title}", "bold")
    table = Table(box=None, pad_edge=False)
    for n, name in enumerate(columns):
        words = n == 0 or name.startswith("<")
        table.add_column(name.lstrip("<"), no_wrap=True, justify="left" if words else "right")
    if elastic is not None:
        widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
        room = out.width - sum(widths) + widths[elastic] - 2 * (len(widths) - 1)
        rows = [
            [show.cut(cell, max(room, 8)) if n == elastic else cell for n, cell in enumerate(row)]
            for row in rows
        ]
    for row in rows:
        # Names come from logs: nothing in them is markup.
        table.add_row(*map(Text, row))
    out.print(table)


def _print(text: str, style: str | None = None) -> None:
    out.print(text, highlight=False, markup=False, style=style)


def _show_counts(summary: dict[str, Any]) -> None:
    from toolkit.training.table.cores import told_cores

    _print(
        f"{summary['records']:,} records of {summary['candidates']:,} candidates, "
        f"{show.plural(len(summary['tasks']), 'task')}, "
        f"{show.plural(len(summary['sources']), 'file')}; "
        f"{summary['failed']:,} records failed, {summary['duplicates']:,} exact duplicates, "
        f"{summary['rejected']:,} lines rejected"
    )
    machines = [
        (entry["machine"] or "unknown", entry["target_kind"], f"{entry['tasks']:,}",
         f"{entry['records']:,}")
        for entry in summary["machines"]
    ]  # fmt: skip
    _show_table("", ("machine", "<target", "tasks", "records"), machines)
    for line in told_cores(summary["cores"]):
        _print(line)


def _show_tasks(summary: dict[str, Any], limit: int) -> None:
    ordered = sorted(summary["tasks"], key=lambda task: -(task["latency_share"] or 0.0))
    listed = ordered[: limit or None]
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "task": lambda task: task["task_id"][:8],
        "<workload": _name,
        "records": lambda task: f"{task['records']:,}",
        "failed": lambda task: show.percent(task["failed"] / task["records"], 0),
        "best": lambda task: show.seconds(task["best_s"], "none"),
        "latency": lambda task: show.percent(task["latency_share"], 0),
        "time": lambda task: show.percent(task["time_share"], 0),
        "settled at": _settled,
        "to expect": lambda task: show.percent(task["convergence"]["expected_gain"]),
        "<verdict": lambda task: (
            "enumerated" if task["enumerated"] else task["convergence"]["verdict"]
        ),
        "<decides most": _decides,
    }
    if out.width < WIDE:
        del columns["<decides most"]
    if out.width < MIDDLE:
        for name in ("failed", "time", "settled at"):
            del columns[name]
    _show_table(
        "Tasks, largest share of the summed best latency first",
        list(columns),
        [[write(task) for write in columns.values()] for task in listed],
        elastic=1,
    )
    if any(task["enumerated"] for task in listed):
        _print("enumerated: converged, since the whole space was measured")
    rest = len(ordered) - len(listed)
    if rest > 0:
        _print(f"and {show.plural(rest, 'more task')} (--tasks 0 lists all)")


def _name(task: dict[str, Any]) -> str:
    # Names given by 'toolkit collect' hold all numbers already.
    return str(task["workload"] if ":" in task["workload"] else task["name"])


def _settled(task: dict[str, Any]) -> str:
    state = task["convergence"]
    settled = state["settled_at"]
    return "–" if settled is None else f"{settled:,}/{state['evaluations']:,}"


def _decides(task: dict[str, Any]) -> str:
    if not task["knobs"]:
        return "–"
    return f"{task['knobs'][0]['knob']} {show.percent(task['knobs'][0]['effect'], 0)}"


def _show_verdicts(summary: dict[str, Any]) -> None:
    counts = summary["verdicts"]
    _print(
        "\n"
        + show.listed([f"{count:,} {word}" for word, count in counts.items()])
        + ". Converged: the second half of the leading run gained less than 1 % (or everything "
        "was measured)."
    )
    test = summary["backtest"]
    if not test["runs"]:
        _print("No run is long enough to tell how right that is.")
        return
    _print(
        f"Cut at half, {show.plural(test['runs'], 'run')} would have been called converged "
        f"{show.plural(test['called_converged'], 'time')}, and {test['gained_after']:,} of these "
        f"gained 1 % or more after all; of {test['called_improving']:,} called still improving "
        f"{test['improved_after']:,} did. Expected gain {show.percent(test['expected_gain'])} on "
        f"average, {show.percent(test['gain'])} came."
    )


def _show_failures(summary: dict[str, Any]) -> None:
    if summary["measuring_s"] is None:
        _print("\nTime: the log says of no record how long it took.")
    else:
        known = summary["timed_share"]
        _print(
            f"\nTime: {show.seconds(summary['measuring_s'])} of measuring are known"
            + ("." if known == 1 else f", of {show.percent(known)} of the records.")
        )
    if not summary["failures"]:
        _print("No record failed.")
        return
    rows = [
        (
            entry["state"].replace("_", " "),
            f"{entry['records']:,}",
            show.percent(entry["share"]),
            show.seconds(entry["seconds"], "unknown"),
            show.percent(entry["seconds_share"], absent="unknown"),
        )
        for entry in summary["failures"]
    ]
    _show_table("", ("failed by", "records", "share", "time", "share of time"), rows)


def _show_noise(noise: dict[str, Any]) -> None:
    kinds = {"within": "within a record", "between": "between records of a candidate"}
    rows = [
        (
            name,
            f"{noise[key]['groups']:,}",
            show.percent(noise[key]["median"], 2, "unknown"),
            show.percent(noise[key]["p90"], 2, "unknown"),
        )
        for key, name in kinds.items()
    ]
    _show_table("", ("relative spread of repeats", "groups", "median", "90 % are below"), rows)


def _show_knobs(knobs: list[dict[str, Any]]) -> None:
    if not knobs:
        _print("\nDecisions: no sketch has candidates enough to tell which one matters.")
        return
    sketches: dict[str, list[dict[str, Any]]] = {}
    for row in knobs:
        sketches.setdefault(row["sketch_id"], []).append(row)
    rows = [
        (
            sketch_id[:8],
            row["workload"],
            row["knob"],
            f"{row['tasks']:,}",
            f"{row['top_in']:,}",
            show.percent(row["effect"], 0),
            show.percent(row["gain"], 0),
        )
        for sketch_id, own in list(sketches.items())[:SKETCHES_SHOWN]
        for row in own[:KNOBS_SHOWN]
    ]
    _show_table(
        "Which decision matters: share of the variance of log latency, medians over tasks",
        ("sketch", "<workload", "<decision", "tasks", "top in", "explains", "best over median"),
        rows,
        elastic=1,
    )
    rest = len(sketches) - SKETCHES_SHOWN
    if rest > 0:
        _print(f"and {show.plural(rest, 'more sketch', 'more sketches')} (--json lists all)")


def _show_tuners(tuners: dict[str, Any]) -> None:
    tasks = show.plural(tuners["tasks"], "task")
    which = "that all of them ran" if tuners["common"] else "that two of them ran"
    title = f"Tuners (told apart by: {tuners['by']}) on {tasks} {which}, medians over tasks"
    percents = [reached["percent"] for reached in tuners["tuners"][0]["reached"]]
    columns = [f"to {percent} %" for percent in percents]
    rows = []
    for tuner in tuners["tuners"]:
        nearest = tuner["reached"][-1]
        ends = "–" if tuner["final_ratio"] is None else f"{show.ratio(tuner['final_ratio'])} ×"
        rows.append(
            (
                tuner["tuner"],
                f"{tuner['runs']:,}",
                show.number(tuner["evaluations"]),
                *(show.number(reached["evaluations"], "not") for reached in tuner["reached"]),
                show.percent(nearest["reached_share"], 0),
                show.seconds(nearest["seconds"]),
                ends,
            )
        )
    heads = ("tuner", "runs", "length", *columns, "got there", "seconds", "ends at")
    _show_table(title, heads, rows, elastic=0)
    _print(
        f"Evaluations to within so many per cent of the best recorded by any tuner; runs that got "
        f"there and seconds are for {percents[-1]} %; “not”: in fewer than half."
    )
