"""Caveats: what weakens a report's findings, shown next to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit import show
from toolkit.datasets.analysis.speeds import told_speeds
from toolkit.reports.page.inputs import Section

FEW_TASKS = 5
FEW_SEEDS = 5
GOOD_COVERAGE = 0.95


def find_caveats(
    dataset: Section,
    throughput: Sequence[Section],
    mutation: Sequence[Section],
    simulations: Sequence[Section],
    live: Section,
) -> list[str]:
    """Return one sentence for each weakness of the record, the models, the replays, the device."""
    models = [("throughput", one) for one in throughput] + [("mutation", one) for one in mutation]
    found = [
        *_dataset_caveats(dataset),
        *(
            f"The {kind} model was judged on {show.plural(one['test_tasks'], 'task')} only."
            for kind, one in models
            if one["test_tasks"] is not None and one["test_tasks"] < FEW_TASKS
        ),
        *(caveat for one in simulations for caveat in _simulation_caveats(one)),
        *(f"While measuring: {warning}." for warning in live.get("warnings", [])),
        *_mismatches(dataset, [one for _, one in models], simulations, live),
    ]
    return list(dict.fromkeys(found))


def _dataset_caveats(dataset: Section) -> Iterator[str]:
    if dataset["missing"]:
        yield "No dataset was given: the report says nothing about the record itself."
        return
    tasks = len(dataset["tasks"])
    if partial := tasks - dataset["enumerated_tasks"]:
        yield (
            f"{show.plural(partial, 'task was', 'tasks were')} not enumerated: the best is only "
            "the best recorded one, and a faster program may exist."
        )
    if unknown := dataset["unknown_machine_tasks"]:
        yield (
            f"The machine of {show.plural(unknown, 'task')} is not named: tasks of different "
            "machines may be mixed up (name machines with toolkit ingest --machine or --path-rule)."
        )
    if once := tasks - dataset["repeated_tasks"]:
        yield (
            f"In {show.plural(once, 'task')} no candidate was measured twice: the noise "
            "there is unknown."
        )
    if dataset["speeds"] and (slower := told_speeds(dataset["speeds"])):
        yield f"{slower} Do not compare tuners whose runs differ in speed (toolkit describe)."


def _simulation_caveats(simulation: Section) -> Iterator[str]:
    name, tasks = simulation["name"], len(simulation["tasks"])
    if tasks < FEW_TASKS or simulation["seeds"] < FEW_SEEDS:
        yield (
            f"The replay {name!r} has {show.plural(tasks, 'task')} and "
            f"{show.plural(simulation['seeds'], 'seed')}: with so few, its intervals are wide."
        )
    low = [
        f"{row['strategy']} ({show.percent(row['coverage'], 0)})"
        for row in simulation["strategies"]
        if row["coverage"] is not None and row["coverage"] < GOOD_COVERAGE
    ]
    if low:
        yield (
            f"In the replay {name!r} some proposals had not been recorded (the rule for them: "
            f"{simulation['missing_rule']}); coverage: {show.listed(low)}."
        )
    if modelled := simulation["seconds_from"].get("cost_model", 0.0):
        yield (
            f"In the replay {name!r} the seconds of {show.percent(modelled)} of the measurements "
            "were not recorded: they are estimates of the scenario's cost model."
        )
    for missing in simulation["left_out"]:
        yield f"{missing['strategy']} was left out of the replay {name!r}: {missing['reason']}."


def _mismatches(
    dataset: Section, models: Sequence[Section], simulations: Sequence[Section], live: Section
) -> list[str]:
    """Parts that were made from another dataset than the one shown."""
    own = dataset.get("fingerprint")
    parts = [
        *((f"The model in {one['path']}", one["dataset_fingerprint"]) for one in models),
        *((f"The replay {one['name']!r}", one["dataset_fingerprint"]) for one in simulations),
        ("Each live verdict", live.get("dataset_fingerprint")),
    ]
    return [
        f"{what} was made from another state of the dataset than the one shown here: run its "
        "command again."
        for what, fingerprint in parts
        if None not in (own, fingerprint) and fingerprint != own
    ]
