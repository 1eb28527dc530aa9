"""What weakens a report's findings: said beside them, not in a footnote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit import show

FEW_TASKS = 5
FEW_SEEDS = 5
GOOD_COVERAGE = 0.95

Section = Mapping[str, Any]


def find_caveats(
    dataset: Section,
    throughput: Sequence[Section],
    mutation: Sequence[Section],
    simulations: Sequence[Section],
    live: Section,
) -> list[str]:
    """Return one sentence for each weakness of the record, the models, the replays, the device."""
    found = [
        *_dataset_caveats(dataset),
        *(caveat for one in throughput for caveat in _model_caveats("throughput", one)),
        *(caveat for one in mutation for caveat in _model_caveats("mutation", one)),
        *(caveat for one in simulations for caveat in _simulation_caveats(one)),
        *_live_caveats(live),
        *_mismatches(dataset, [*throughput, *mutation], simulations, live),
    ]
    return list(dict.fromkeys(found))


def _dataset_caveats(dataset: Section) -> list[str]:
    if dataset["missing"]:
        return ["No dataset was given: nothing is said of the record itself."]
    found = []
    tasks = len(dataset["tasks"])
    partial = tasks - dataset["enumerated_tasks"]
    if partial:
        found.append(
            f"{show.plural(partial, 'task was', 'tasks were')} not enumerated: what is best there "
            "is the best that was recorded, and something faster may exist."
        )
    unknown = dataset["unknown_machine_tasks"]
    if unknown:
        found.append(
            f"The machine of {show.plural(unknown, 'task')} is not named: tasks of different "
            "machines may have been taken for one (toolkit ingest --machine or --path-rule)."
        )
    once = tasks - dataset["repeated_tasks"]
    if once:
        found.append(
            f"In {show.plural(once, 'task')} no candidate was measured twice: how much of a "
            "difference there is noise is unknown."
        )
    return found


def _model_caveats(kind: str, model: Section) -> list[str]:
    found = []
    if model["test_tasks"] is not None and model["test_tasks"] < FEW_TASKS:
        found.append(
            f"The {kind} model was judged on {show.plural(model['test_tasks'], 'task')} only."
        )
    return found


def _simulation_caveats(simulation: Section) -> list[str]:
    name, tasks = simulation["name"], len(simulation["tasks"])
    found = []
    if tasks < FEW_TASKS or simulation["seeds"] < FEW_SEEDS:
        found.append(
            f"The replay {name!r} has {show.plural(tasks, 'task')} and "
            f"{show.plural(simulation['seeds'], 'seed')}: its intervals are wide for a reason."
        )
    low = [
        f"{row['strategy']} ({show.percent(row['coverage'], 0)})"
        for row in simulation["strategies"]
        if row["coverage"] is not None and row["coverage"] < GOOD_COVERAGE
    ]
    if low:
        found.append(
            f"In the replay {name!r} part of what was proposed had not been recorded and was not "
            f"counted ({simulation['missing_rule']}); coverage: {show.listed(low)}."
        )
    modelled = simulation["seconds_from"].get("cost_model", 0.0)
    if modelled:
        found.append(
            f"In the replay {name!r} the seconds of {show.percent(modelled)} of the measurements "
            "were not recorded and follow from a stated cost model."
        )
    for missing in simulation["left_out"]:
        found.append(
            f"{missing['strategy']} was left out of the replay {name!r}: {missing['reason']}."
        )
    return found


def _live_caveats(live: Section) -> list[str]:
    return [f"While measuring: {warning}." for warning in live.get("warnings", [])]


def _mismatches(
    dataset: Section, models: Sequence[Section], simulations: Sequence[Section], live: Section
) -> list[str]:
    """Parts that were made from another dataset than the one shown."""
    own = dataset.get("fingerprint")
    if own is None:
        return []
    parts = [(f"the model in {m['path']}", m["dataset_fingerprint"]) for m in models]
    parts += [(f"the replay {s['name']!r}", s["dataset_fingerprint"]) for s in simulations]
    parts += [("each live verdict", live.get("dataset_fingerprint"))]
    return [
        f"{what[0].upper()}{what[1:]} was made from another state of the dataset than the one "
        "shown here: run its command again."
        for what, fingerprint in parts
        if fingerprint is not None and fingerprint != own
    ]
