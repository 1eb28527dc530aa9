"""``toolkit describe``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any

from typer import Option

from toolkit import show
from toolkit.cli.common import DatasetDir, Json, Machines, Peak, answer, opened_dataset, peaks
from toolkit.cli.comparisons import show_tuners, show_twins
from toolkit.cli.tables import NARROW, Columns, counted, out, print_plain, say

WIDE, MIDDLE = 150, 124
"""Widths of a terminal below which the table of tasks leaves out columns."""
KNOBS_SHOWN = 3
SKETCHES_SHOWN = 5

Row = Mapping[str, Any]


def describe(
    dataset: DatasetDir = None,
    tasks: Annotated[int, Option(min=0, help="Tasks to list; 0 lists all.")] = 20,
    machine: Machines = None,
    correct_speed: Annotated[
        bool,
        Option(
            "--correct-speed",
            help="First divide each run's latencies by its slowdown, measured on candidates shared "
            "with other runs.",
        ),
    ] = False,
    peak: Peak = None,
    json: Json = False,
) -> None:
    """Show what the dataset holds, and answer the first questions about a log.

    Tells how far each task is from convergence, what failures cost, how noisy repeats are, which
    decision matters most, which tasks dominate, and when each tuner reached what. Every figure is
    defined in docs/reference/analysis.md.

    Example: toolkit describe --json
    """
    from toolkit.datasets import describe as run
    from toolkit.features.computations import (
        formats_compared,
        in_several_formats,
        with_computations,
    )
    from toolkit.training.table.cores import core_counts

    data = opened_dataset(dataset)
    if machine:
        data = data.of_machines(machine)
    found = run(data, correct_speed=correct_speed)
    rows = with_computations(data, found.tasks, peaks(peak))
    compared = [one.to_json() for one in formats_compared(in_several_formats(rows))]
    cores = core_counts(data.tasks().values())
    summary = {**found, "tasks": rows, "formats_compared": compared, "cores": cores}
    answer(summary, json, lambda found: _show(found, tasks))


def _show(summary: Row, tasks: int) -> None:
    _show_counts(summary)
    if not summary["tasks"]:
        say("next: toolkit ingest LOGS", "bold")
        return
    _show_tasks(summary, tasks)
    show_twins(summary["tasks"], summary["formats_compared"])
    _show_verdicts(summary)
    _show_failures(summary)
    _show_noise(summary["noise"])
    _show_speeds(summary["speeds"])
    _show_knobs(summary["knobs"])
    if summary["tuners"] is not None:
        show_tuners(summary["tuners"])
    if summary["failed"] < summary["records"]:
        say("next: toolkit train throughput", "bold")


def _show_counts(summary: Row) -> None:
    from toolkit.training.table.cores import told_cores

    say(
        f"{summary['records']:,} records of {summary['candidates']:,} candidates, "
        f"{show.plural(len(summary['tasks']), 'task')}, "
        f"{show.plural(len(summary['sources']), 'file')}; "
        f"{summary['failed']:,} records failed, {summary['duplicates']:,} exact duplicates, "
        f"{summary['rejected']:,} lines rejected"
    )
    print_plain(
        {
            "machine": lambda row: row["machine"] or "unknown",
            "target": itemgetter("target_kind"),
            ">tasks": counted("tasks"),
            ">records": counted("records"),
        },
        summary["machines"],
    )
    for line in told_cores(summary["cores"]):
        say(line)


def _show_tasks(summary: Row, limit: int) -> None:
    ordered = sorted(summary["tasks"], key=lambda task: -(task["latency_share"] or 0.0))
    listed = ordered[: limit or None]
    columns: Columns = {
        "task": lambda task: task["task_id"][:8],
        # Names given by 'toolkit collect' already hold all numbers.
        "workload": lambda task: task["workload" if ":" in task["workload"] else "name"],
        ">records": counted("records"),
        ">failed": lambda task: show.percent(task["failed"] / task["records"], 0),
        ">best": lambda task: show.seconds(task["best_s"], "none"),
        ">GFLOP/s": lambda task: show.number(task["gflop_per_s"]),
        ">of peak": lambda task: show.percent(task["of_peak"], 0),
        ">latency": lambda task: show.percent(task["latency_share"], 0),
        ">time": lambda task: show.percent(task["time_share"], 0),
        ">settled at": lambda task: _settled(task["convergence"]),
        ">to expect": lambda task: show.percent(task["convergence"]["expected_gain"]),
        "verdict": _verdict,
        "decides most": lambda task: _decides(task["knobs"]),
    }
    left_out = [
        *((">of peak",) if all(task["of_peak"] is None for task in listed) else ()),
        *(("decides most",) if out.width < WIDE else ()),
        *((">failed", ">time", ">settled at") if out.width < MIDDLE else ()),
        *((">records", ">latency") if out.width < NARROW else ()),
    ]
    print_plain(
        {head: write for head, write in columns.items() if head not in left_out},
        listed,
        "Tasks, largest share of the summed best latency first",
        elastic=1,
        shorten=show.task_label,
    )
    if any(task["enumerated"] for task in listed):
        say("enumerated: converged, since the whole space was measured")
    if rest := len(ordered) - len(listed):
        say(f"and {show.plural(rest, 'more task')} (--tasks 0 lists all)")


def _verdict(task: Row) -> str:
    if task["enumerated"]:
        return "enumerated"
    word: str = task["convergence"]["verdict"]
    # In a narrow terminal the workload needs the room.
    return word.removeprefix("still ") if out.width < NARROW else word


def _settled(state: Row) -> str:
    settled = state["settled_at"]
    return "–" if settled is None else f"{settled:,}/{state['evaluations']:,}"


def _decides(knobs: Sequence[Row]) -> str:
    return f"{knobs[0]['knob']} {show.percent(knobs[0]['effect'], 0)}" if knobs else "–"


def _show_verdicts(summary: Row) -> None:
    counts = [f"{count:,} {word}" for word, count in summary["verdicts"].items()]
    say(
        f"\n{show.listed(counts)}. Converged: the second half of the leading run gained less than "
        "1 % (or everything was measured)."
    )
    test = summary["backtest"]
    if not test["runs"]:
        say("No run is long enough to check these verdicts.")
        return
    say(
        f"Check at half of {show.plural(test['runs'], 'run')}: {test['called_converged']:,} called "
        f"converged, and {test['gained_after']:,} of these then gained 1 % or more; "
        f"{test['called_improving']:,} called still improving, and {test['improved_after']:,} of "
        f"these then did. Expected gain {show.percent(test['expected_gain'])} on average, actual "
        f"gain {show.percent(test['gain'])}."
    )


def _show_failures(summary: Row) -> None:
    known = summary["timed_share"]
    if summary["measuring_s"] is None:
        say("\nTime: no record says how long it took.")
    else:
        of = "" if known == 1 else f" (known for {show.percent(known)} of the records)"
        say(f"\nTime: {show.seconds(summary['measuring_s'])} of measuring{of}.")
    if not summary["failures"]:
        say("No record failed.")
        return
    print_plain(
        {
            "failed by": lambda row: row["state"].replace("_", " "),
            ">records": counted("records"),
            ">share": lambda row: show.percent(row["share"]),
            ">time": lambda row: show.seconds(row["seconds"], "unknown"),
            ">share of time": lambda row: show.percent(row["seconds_share"], absent="unknown"),
        },
        summary["failures"],
    )


def _show_noise(noise: Row) -> None:
    kinds = {"within a record": "within", "between records of a candidate": "between"}
    print_plain(
        {
            "relative spread of repeats": lambda row: row[0],
            ">groups": lambda row: f"{row[1]['groups']:,}",
            ">median": lambda row: show.percent(row[1]["median"], 2, "unknown"),
            ">90 % are below": lambda row: show.percent(row[1]["p90"], 2, "unknown"),
        },
        [(name, noise[key]) for name, key in kinds.items()],
    )


def _show_speeds(speeds: Row | None) -> None:
    if speeds is None:
        return
    from toolkit.datasets.analysis.speeds import told_speeds

    told = told_speeds(speeds)
    if not told:
        say(
            f"{show.plural(speeds['runs'], 'run')} of {show.plural(speeds['tasks'], 'task')} share "
            "candidates; their latencies agree within 5 %."
        )
    elif speeds["corrected"]:
        say(f"{told} All figures use latencies that are divided by this slowdown.")
    else:
        say(f"{told} Runs and tuners of different speeds cannot be compared: see --correct-speed.")


def _show_knobs(knobs: Sequence[Row]) -> None:
    if not knobs:
        say("\nDecisions: no sketch has enough candidates to say which decision matters.")
        return
    sketches: dict[str, list[Row]] = {}
    for row in knobs:
        sketches.setdefault(row["sketch_id"], []).append(row)
    print_plain(
        {
            "sketch": lambda row: row["sketch_id"][:8],
            "workload": itemgetter("workload"),
            "decision": itemgetter("knob"),
            ">tasks": counted("tasks"),
            ">top in": counted("top_in"),
            ">explains": lambda row: show.percent(row["effect"], 0),
            f">{'best ' if out.width >= NARROW else ''}over median": lambda row: show.percent(
                row["gain"], 0
            ),
        },
        [row for own in list(sketches.values())[:SKETCHES_SHOWN] for row in own[:KNOBS_SHOWN]],
        "Which decision matters: share of the variance of log latency, medians over tasks",
        elastic=1,
        shorten=_operator,
    )
    if (rest := len(sketches) - SKETCHES_SHOWN) > 0:
        say(f"and {show.plural(rest, 'more sketch', 'more sketches')} (--json lists all)")


def _operator(workload: str, chars: int) -> str:
    if show.is_hash(workload):
        return workload[:8]
    return workload if len(workload) <= chars else show.cut(show.main_operator(workload), chars)
