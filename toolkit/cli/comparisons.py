"""Prints the comparisons of ``toolkit describe``: formats of one computation, and tuners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from toolkit import show
from toolkit.cli.tables import NARROW, Columns, counted, out, print_plain, say

SLOWDOWN_SHOWN = 1.05
TWINS_SHOWN = 12

Row = Mapping[str, Any]


def show_twins(tasks: Sequence[Row], compared: Sequence[Row]) -> None:
    """Print tasks of different formats that compute the same, side by side."""
    from toolkit.features.computations import in_several_formats, told_comparison, told_computation

    twins = in_several_formats(tasks)
    if not twins:
        return
    machine: Columns = {"machine": lambda task: task["machine"] or "unknown"}
    several = len({task["machine"] for task in twins}) > 1
    task_id: Columns = {"task": lambda task: task["task_id"][:8]}
    print_plain(
        {
            "computes": lambda task: told_computation(task["computes"]),
            "format": itemgetter("format"),
            **(machine if several else {}),
            # A narrow terminal has no room for both: the machine is shown.
            **({} if several and out.width < NARROW else task_id),
            ">best": lambda task: show.seconds(task["best_s"], "none"),
            ">GFLOP/s": lambda task: show.number(task["gflop_per_s"]),
        },
        twins[:TWINS_SHOWN],
        "The same computation in several formats",
    )
    if (rest := len(twins) - TWINS_SHOWN) > 0:
        say(f"and {show.plural(rest, 'more task')} (--json lists all)")
    for one in compared:
        say(told_comparison(one))


def show_tuners(tuners: Row) -> None:
    """Print how soon each tuner came near the best recorded, and how slow its machine was."""
    tasks = show.plural(tuners["tasks"], "task")
    which = "that all of them ran" if tuners["common"] else "that two of them ran"
    percents = [reached["percent"] for reached in tuners["tuners"][0]["reached"]]

    def near(n: int) -> Callable[[Row], str]:
        return lambda row: show.number(row["reached"][n]["evaluations"], "not")

    def times(key: str) -> Callable[[Row], str]:
        return lambda row: "–" if row[key] is None else f"{show.ratio(row[key])} ×"

    slow = any((row["slowdown"] or 0.0) >= SLOWDOWN_SHOWN for row in tuners["tuners"])
    # The slowdown explains all other columns: in a narrow terminal it replaces two of them.
    crowded = out.width < NARROW and slow
    length: Columns = {">length": lambda row: show.number(row["evaluations"])}
    nearer = {n: percent for n, percent in enumerate(percents) if not crowded or n != 1}
    print_plain(
        {
            "tuner": itemgetter("tuner"),
            ">runs": counted("runs"),
            **({} if crowded else length),
            **{f">to {percent} %": near(n) for n, percent in nearer.items()},
            ">got there": lambda row: show.percent(row["reached"][-1]["reached_share"], 0),
            ">seconds": lambda row: show.seconds(row["reached"][-1]["seconds"]),
            ">ends at": times("final_ratio"),
            **({">slowdown": times("slowdown")} if slow else {}),
        },
        tuners["tuners"],
        f"Tuners (distinguished by: {tuners['by']}) on {tasks} {which}, medians over tasks",
    )
    say(
        "“to N %”: evaluations until within N % of the best recorded by any tuner. “got there” and "
        f"“seconds” are for {percents[-1]} %. “not”: fewer than half of the runs."
    )
    if slow:
        say(
            "Slowdown: recorded latency of the same candidates over that of the task's fastest "
            "run; such a difference is caused by the machine, not by the tuner."
        )
