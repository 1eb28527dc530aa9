"""The head of a report: findings in sentences, key figures, and caveats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolkit import show
from toolkit.replay.statistics.power import told_power
from toolkit.reports.caveats import find_caveats
from toolkit.reports.page.inputs import Section

EFFORT = "median_evaluations_to_1pct"
Tile = dict[str, str]


def headline(
    dataset: Section,
    throughput: Sequence[Section],
    mutation: Sequence[Section],
    simulations: Sequence[Section],
    live: Section,
) -> dict[str, Any]:
    """Summarise the findings in sentences, with their intervals and ties.

    Returns ``title`` (one sentence), ``findings`` (further ones), ``tiles`` (value, what it is,
    detail) and ``caveats``.
    """
    # The replay with the most strategies first: a replay of one strategy compares nothing.
    simulations = sorted(simulations, key=lambda one: -len(one["strategies"]))
    findings = [
        *(finding for one in simulations for finding in _strategy_findings(one)),
        *(_model_finding(one) for one in throughput),
        *(_mutation_finding(one) for one in mutation),
        *([_live_finding(live)] if live["verdicts"] else []),
        *_dataset_findings(dataset),
    ]
    tiles = [
        *(_strategy_tile(one) for one in simulations[:1]),
        *(_model_tile(one) for one in throughput[:1] if "top1" in one["metrics"]),
        *([_live_tile(live)] if live["verdicts"] else []),
        *_dataset_tiles(dataset),
    ]
    return {
        "title": findings[0] if findings else "There are no findings yet.",
        "findings": findings[1:],
        "tiles": tiles,
        "caveats": find_caveats(dataset, throughput, mutation, simulations, live),
    }


def _tile(value: str, what: str, detail: str) -> Tile:
    return {"value": value, "what": what, "detail": detail}


def _reached(row: Section, unreached: str) -> str:
    """Median evaluations with their interval; without a median the share that reached 1 %."""
    if row[EFFORT] is None:
        return unreached.format(f"only {show.percent(row['reached_share'])} of its runs")
    return f"{show.number(row[EFFORT])} {show.interval(row[f'{EFFORT}_interval'])}"


def _goal(simulation: Section) -> str:
    """Say "best recorded", or "optimum" only where every task was enumerated."""
    complete = simulation["enumerated_tasks"] == len(simulation["tasks"])
    return "the optimum" if complete else "the best recorded latency"


def _strategy_findings(simulation: Section) -> Iterator[str]:
    rows = simulation["strategies"]
    first = [row for row in rows if row["rank"] == 1]
    goal = _goal(simulation)
    where = f"Replayed on {show.plural(len(simulation['tasks']), 'task')}"
    if len(first) > 1:
        names = show.listed([row["strategy"] for row in first])
        efforts = [f"{row['strategy']} {_reached(row, '({} came within 1 %)')}" for row in first]
        can = simulation["power"]
        undecided = can is not None and not can["can_decide"]
        why = told_power(can) if undecided else "no difference between them is proven"
        yield f"{where}, {names} share the first place: {why}."
        yield f"Their median evaluations to within 1 % of {goal}: {show.listed(efforts)}."
        return
    best, effort = first[0], _reached(first[0], "{}")
    text = (
        f"came first, but {effort} came within 1 % of {goal}"
        if best[EFFORT] is None
        else f"came within 1 % of {goal} after a median of {effort} evaluations"
    )
    baseline = simulation["baseline"]
    other = next((row for row in rows if row["strategy"] == baseline), best)
    if other is not best and other[EFFORT] is None:
        text += f"; of {baseline} search, {_reached(other, '{}')} did"
    elif other is not best:
        text += f"; {baseline} search needed {_reached(other, '')}"
    yield f"{where}, {best['strategy']} {text}."


def _strategy_tile(simulation: Section) -> Tile:
    row = simulation["strategies"][0]
    goal = f"within 1 % of {_goal(simulation)}"
    who = f"{row['strategy']}, {row['runs']:,} runs"
    if row[EFFORT] is None:
        bounds = show.interval(row["reached_share_interval"], "percent")
        share = show.percent(row["reached_share"], 0)
        return _tile(share, f"of the runs came {goal}", f"{who} {bounds}")
    detail = f"{who}, median {show.interval(row[f'{EFFORT}_interval'])}"
    return _tile(show.number(row[EFFORT]), f"evaluations to {goal}", detail)


def _with_bounds(figure: Section, form: str = "percent") -> str:
    write = show.gain if form == "gain" else show.percent
    return f"{write(figure['value'])} {show.bounds(figure, form)}"


def _model_finding(model: Section) -> str:
    top1, top5 = model["metrics"].get("top1"), model["metrics"].get("top5")
    if top1 is None or top5 is None:
        return f"The model in {model['path']} was not judged."
    return (
        f"On {show.plural(model['test_tasks'], 'task')} that it was not trained on, the throughput "
        f"model's first pick runs at {_with_bounds(top1)} of the best recorded speed, "
        f"the best of its first five at {_with_bounds(top5)} (means over tasks)."
    )


def _model_tile(model: Section) -> Tile:
    top1 = model["metrics"]["top1"]
    what = "of the best recorded speed with the model's first pick"
    tasks = show.plural(model["test_tasks"], "left-out task")
    detail = f"mean over {tasks} {show.bounds(top1, 'percent')}"
    return _tile(show.percent(top1["value"]), what, detail)


def _mutation_finding(model: Section) -> str:
    shares = model["levels"][0]["shares"]
    if "model" not in shares or "base_rate" not in shares:
        return f"The mutation model in {model['path']} was not judged."
    ahead = model["metrics"].get("ahead_of_base_rate")
    unproven = ahead is not None and ahead["low"] is not None and ahead["low"] <= 0
    return (
        f"On {show.plural(model['test_tasks'], 'task')} that it was not trained on, the mutation "
        f"model's directions pick up {_with_bounds(shares['model'], 'gain')} of what an "
        "oracle would gain; the direction that is best on average "
        f"{_with_bounds(shares['base_rate'], 'gain')}"
        f"{': by task, the difference is not proven' if unproven else ''}."
    )


def _live_finding(live: Section) -> str:
    verdicts = live["verdicts"]
    proven = [v for v in verdicts if v["verdict"] == "better"]
    gains = "; ".join(f"{v['name']} {show.number(1 / v['ratio'])} times" for v in proven)
    words = {"not_better": "not better", "undecided": "undecided"}
    rest = show.listed([f"{live[key]} {word}" for key, word in words.items() if live[key]])
    return (
        f"On the device, {len(proven)} of {show.plural(len(verdicts), 'validated task')} got a "
        "program that is proven faster than the incumbent"
        f"{f' ({gains})' if gains else ''}{f'; {rest}' if rest else ''}."
    )


def _live_tile(live: Section) -> Tile:
    value = f"{live['better']} of {len(live['verdicts'])}"
    detail = f"{live['not_better']} not better, {live['undecided']} undecided"
    return _tile(value, "validated tasks proven better on the device", detail)


def _dataset_findings(dataset: Section) -> Iterator[str]:
    if dataset["missing"]:
        return
    counts = dataset["verdicts"]
    tasks = show.plural(len(dataset["tasks"]), "task")
    cost = ""
    if dataset["failing_s"] and dataset["measuring_s"]:
        share = show.percent(dataset["failing_s"] / dataset["measuring_s"])
        cost = f" and took {share} of the time"
    yield (
        f"The record holds {show.plural(dataset['records'], 'measurement')} of "
        f"{show.plural(dataset['candidates'], 'candidate')} in {tasks}; "
        f"{show.percent(dataset['failed'] / max(dataset['records'], 1))} of them failed{cost}."
    )
    if not counts:
        return
    to_gain = sum(task["gain_to_expect"] or 0.0 for task in dataset["tasks"])
    yield (
        f"Converged: {counts['converged']:,} of {tasks}; still improving: "
        f"{counts['still improving']:,}; too short to tell: {counts['too short']:,}. As many "
        "evaluations again are expected to lower the summed best latency by "
        f"{show.percent(to_gain)}."
    )
    if dataset["knobs"]:
        top = max(dataset["knobs"], key=lambda row: (row["top_in"], row["effect"]))
        yield (
            f"{top['knob']} decides most: it explains {show.percent(top['effect'], 0)} of the "
            f"variance of log latency ({top['workload']}, median of "
            f"{show.plural(top['tasks'], 'task')})."
        )
    if dataset["tuners"]:
        yield _tuner_finding(dataset["tuners"])


def _tuner_finding(tuners: Section) -> str:
    first, *others = tuners["tuners"]
    nearest = first["reached"][-1]
    where = f"On {show.plural(tuners['tasks'], 'task')}"
    if nearest["evaluations"] is None:
        return (
            f"{where} no recorded tuner came within 1 % of the best recorded in half of its runs."
        )
    bounds = nearest["evaluations_interval"]
    theirs = {other["tuner"]: other["reached"][-1]["evaluations_interval"] for other in others}
    near = [name for name, interval in theirs.items() if _overlap(bounds, interval)]
    tie = f"; these intervals show no difference to {show.listed(near)}" if near else ""
    return (
        f"{where} the recorded runs of {first['tuner']} came within 1 % of the best recorded "
        f"soonest: after a median of {show.number(nearest['evaluations'])} "
        f"{show.interval(bounds)} evaluations{tie}."
    )


def _overlap(bounds: Sequence[float | None] | None, theirs: Sequence[float | None] | None) -> bool:
    """Whether another interval begins before this one ends; true if one of them is unknown."""
    if bounds is None or theirs is None:
        return True
    return theirs[0] is not None and (bounds[1] is None or theirs[0] <= bounds[1])


def _dataset_tiles(dataset: Section) -> Iterator[Tile]:
    if dataset["missing"]:
        return
    tasks, counts = len(dataset["tasks"]), dataset["verdicts"]
    detail = f"{show.plural(tasks, 'task')}, {dataset['enumerated_tasks']:,} of them enumerated"
    yield _tile(f"{dataset['records']:,}", "recorded measurements", detail)
    if counts:
        detail = (
            f"{counts['still improving']:,} still improving, {counts['too short']:,} too short "
            "to tell"
        )
        yield _tile(f"{counts['converged']:,} of {tasks:,}", "tasks converged", detail)
