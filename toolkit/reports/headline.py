"""What a report says first: the findings in sentences, and what weakens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit import show
from toolkit.reports.caveats import find_caveats

Section = Mapping[str, Any]


def headline(
    dataset: Section,
    throughput: Sequence[Section],
    mutation: Sequence[Section],
    simulations: Sequence[Section],
    live: Section,
) -> dict[str, Any]:
    """Say what was found.

    Returns
    -------
    ``title`` (one sentence), ``findings`` (further ones), ``tiles`` (value, what it is, detail)
    and ``caveats``. A finding names its interval; a tie is called a tie.
    """
    # The comparison of most strategies says most; a replay of one compares nothing.
    simulations = sorted(simulations, key=lambda one: -len(one["strategies"]))
    main = simulations[0] if simulations else None
    findings = [
        *(finding for one in simulations for finding in _strategy_findings(one)),
        *(_model_finding(one) for one in throughput),
        *(_mutation_finding(one) for one in mutation),
        *(_live_findings(live)),
        *(_dataset_finding(dataset)),
    ]
    tiles = [
        *(_strategy_tile(main) if main else []),
        *(_model_tile(throughput[0]) if throughput else []),
        *_live_tile(live),
        *_dataset_tile(dataset),
    ]
    return {
        "title": findings[0] if findings else "Nothing was found yet.",
        "findings": findings[1:],
        "tiles": tiles,
        "caveats": find_caveats(dataset, throughput, mutation, simulations, live),
    }


def best_of(simulation: Section) -> list[Section]:
    """Strategies that share the first rank, the one with the highest mean first."""
    return [row for row in simulation["strategies"] if row["rank"] == 1]


def _effort(row: Section) -> str:
    """Return the median evaluations with their interval; needs a median."""
    value = row["median_evaluations_to_1pct"]
    bounds = row["median_evaluations_to_1pct_interval"]
    return f"{show.number(value)} {show.interval(bounds)}"


def _unreached(row: Section) -> str:
    return f"only {show.percent(row['reached_share'])} of its runs"


def _reference(simulation: Section) -> str:
    """Say "best recorded", or "optimum" only where every task was enumerated."""
    complete = simulation["enumerated_tasks"] == len(simulation["tasks"])
    return "the optimum" if complete else "the best recorded latency"


def _strategy_findings(simulation: Section) -> list[str]:
    first = best_of(simulation)
    goal = _reference(simulation)
    where = f"Replayed on {show.plural(len(simulation['tasks']), 'task')}"
    if len(first) > 1:
        names = show.listed([row["strategy"] for row in first])
        efforts = show.listed([f"{row['strategy']} {_effort_or_share(row)}" for row in first])
        return [
            f"{where}, {names} share the first place: they cannot be told apart.",
            f"Their median evaluations to within 1 % of {goal}: {efforts}.",
        ]
    row = first[0]
    if row["median_evaluations_to_1pct"] is None:
        text = (
            f"{where}, {row['strategy']} came first, but {_unreached(row)} came within 1 % of "
            f"{goal}"
        )
    else:
        text = (
            f"{where}, {row['strategy']} came within 1 % of {goal} after a median of "
            f"{_effort(row)} evaluations"
        )
    baseline = simulation["baseline"]
    if baseline is not None and baseline != row["strategy"]:
        other = next(r for r in simulation["strategies"] if r["strategy"] == baseline)
        if other["median_evaluations_to_1pct"] is None:
            text += f"; of {baseline} search, {_unreached(other)} got there"
        else:
            text += f"; {baseline} search needed {_effort(other)}"
    return [text + "."]


def _effort_or_share(row: Section) -> str:
    if row["median_evaluations_to_1pct"] is None:
        return f"({_unreached(row)} got there)"
    return _effort(row)


def _strategy_tile(simulation: Section) -> list[dict[str, str]]:
    row = best_of(simulation)[0]
    who = f"{row['strategy']}, {row['runs']:,} runs"
    if row["median_evaluations_to_1pct"] is None:
        return [
            {
                "value": show.percent(row["reached_share"], 0),
                "what": f"of the runs came within 1 % of {_reference(simulation)}",
                "detail": f"{who} {show.interval(row['reached_share_interval'], 'percent')}",
            }
        ]
    return [
        {
            "value": show.number(row["median_evaluations_to_1pct"]),
            "what": f"evaluations to within 1 % of {_reference(simulation)}",
            "detail": f"{who}, median {show.interval(row['median_evaluations_to_1pct_interval'])}",
        }
    ]


def _bounds(figure: Section, form: str) -> str:
    return show.interval([figure["low"], figure["high"]], form)


def _model_finding(model: Section) -> str:
    top1, top5 = model["metrics"].get("top1"), model["metrics"].get("top5")
    if top1 is None or top5 is None:
        return f"The model in {model['path']} was not judged."
    tasks = show.plural(model["test_tasks"], "task")
    return (
        f"On {tasks} that it was not trained on, the throughput model's first pick runs at "
        f"{show.percent(top1['value'])} {_bounds(top1, 'percent')} of the best recorded speed, "
        f"the best of its first five at {show.percent(top5['value'])} "
        f"{_bounds(top5, 'percent')} (means over tasks)."
    )


def _mutation_finding(model: Section) -> str:
    shares = model["levels"][0]["shares"]
    if "model" not in shares or "base_rate" not in shares:
        return f"The mutation model in {model['path']} was not judged."
    own, base = shares["model"], shares["base_rate"]
    ahead = model["metrics"].get("ahead_of_base_rate")
    text = (
        f"On {show.plural(model['test_tasks'], 'task')} that it was not trained on, the mutation "
        f"model's directions pick up {show.gain(own['value'])} {_bounds(own, 'gain')} of what an "
        f"oracle would gain; the direction that is best on average {show.gain(base['value'])} "
        f"{_bounds(base, 'gain')}"
    )
    if ahead is not None and ahead["low"] is not None and ahead["low"] <= 0:
        return text + ": by task, the difference is not proven."
    return text + "."


def _model_tile(model: Section) -> list[dict[str, str]]:
    top1 = model["metrics"].get("top1")
    if top1 is None:
        return []
    return [
        {
            "value": show.percent(top1["value"]),
            "what": "of the best recorded speed with the model's first pick",
            "detail": f"mean over {show.plural(model['test_tasks'], 'left-out task')} "
            f"{_bounds(top1, 'percent')}",
        }
    ]


def _live_findings(live: Section) -> list[str]:
    verdicts = live["verdicts"]
    if not verdicts:
        return []
    proven = [v for v in verdicts if v["verdict"] == "better"]
    text = (
        f"On the device, {len(proven)} of {show.plural(len(verdicts), 'validated task')} got a "
        "program that is proven faster than the incumbent"
    )
    if proven:
        gains = [f"{v['name']} {show.number(1 / v['ratio'])} times" for v in proven]
        text += f" ({'; '.join(gains)})"
    rest = [
        f"{live[key]} {word}"
        for key, word in (("not_better", "not better"), ("undecided", "undecided"))
        if live[key]
    ]
    return [text + (f"; {show.listed(rest)}." if rest else ".")]


def _live_tile(live: Section) -> list[dict[str, str]]:
    if not live["verdicts"]:
        return []
    rest = f"{live['not_better']} not better, {live['undecided']} undecided"
    return [
        {
            "value": f"{live['better']} of {len(live['verdicts'])}",
            "what": "validated tasks proven better on the device",
            "detail": rest,
        }
    ]


def _dataset_finding(dataset: Section) -> list[str]:
    if dataset["missing"]:
        return []
    found = [
        f"The record holds {show.plural(dataset['records'], 'measurement')} of "
        f"{show.plural(dataset['candidates'], 'candidate')} in "
        f"{show.plural(len(dataset['tasks']), 'task')}; "
        f"{show.percent(dataset['failed'] / max(dataset['records'], 1))} of them failed"
        + (
            f" and took {show.percent(dataset['failing_s'] / dataset['measuring_s'])} of the time."
            if dataset["failing_s"] and dataset["measuring_s"]
            else "."
        )
    ]
    return found + _analysis_findings(dataset) if dataset["verdicts"] else found


def _analysis_findings(dataset: Section) -> list[str]:
    counts = dataset["verdicts"]
    tasks = len(dataset["tasks"])
    to_gain = sum(task["gain_to_expect"] or 0.0 for task in dataset["tasks"])
    found = [
        f"Converged: {counts['converged']:,} of {show.plural(tasks, 'task')}; still improving: "
        f"{counts['still improving']:,}; too short to tell: {counts['too short']:,}. As many "
        f"evaluations again can be expected to take {show.percent(to_gain)} off the summed best "
        "latency."
    ]
    if dataset["knobs"]:
        top = max(dataset["knobs"], key=lambda row: (row["top_in"], row["effect"]))
        found.append(
            f"{top['knob']} decides most: it explains {show.percent(top['effect'], 0)} of the "
            f"variance of log latency ({top['workload']}, median of "
            f"{show.plural(top['tasks'], 'task')})."
        )
    if dataset["tuners"]:
        found.append(_tuner_finding(dataset["tuners"]))
    return found


def _tuner_finding(tuners: Section) -> str:
    first = tuners["tuners"][0]
    nearest = first["reached"][-1]
    where = f"On {show.plural(tuners['tasks'], 'task')}"
    if nearest["evaluations"] is None:
        return (
            f"{where} no recorded tuner came within 1 % of the best recorded in half of its runs."
        )
    bounds = nearest["evaluations_interval"]
    text = (
        f"{where} the recorded runs of {first['tuner']} came within 1 % of the best recorded "
        f"soonest: after a median of {show.number(nearest['evaluations'])} "
        f"{show.interval(bounds)} evaluations"
    )
    near = [
        tuner["tuner"] for tuner in tuners["tuners"][1:] if _overlap(bounds, tuner["reached"][-1])
    ]
    if near:
        return f"{text}; by these intervals {show.listed(near)} cannot be told apart from it."
    return f"{text}."


def _overlap(bounds: Sequence[float | None] | None, other: Section) -> bool:
    """Whether another's interval begins before this one ends; unknown ones and open ends do."""
    theirs = other["evaluations_interval"]
    if bounds is None or theirs is None:
        return True
    return theirs[0] is not None and (bounds[1] is None or theirs[0] <= bounds[1])


def _dataset_tile(dataset: Section) -> list[dict[str, str]]:
    if dataset["missing"]:
        return []
    tiles = [
        {
            "value": f"{dataset['records']:,}",
            "what": "recorded measurements",
            "detail": f"{show.plural(len(dataset['tasks']), 'task')}, "
            f"{dataset['enumerated_tasks']:,} of them enumerated",
        }
    ]
    if dataset["verdicts"]:
        counts = dataset["verdicts"]
        tiles.append(
            {
                "value": f"{counts['converged']:,} of {len(dataset['tasks']):,}",
                "what": "tasks converged",
                "detail": f"{counts['still improving']:,} still improving, "
                f"{counts['too short']:,} too short to tell",
            }
        )
    return tiles
