"""Races TVM's own tuner against ``toolkit tune`` on a whole network, at equal wall clock.

Each arm is the command that a user would run, in a process that is ended when its time is over.
Meanwhile its database is copied several times. Each copy is compiled as that arm's user would do
it. At the end all compiled networks are measured in turns, in blocks of fresh processes. An arm's
time includes everything it does: imports, models, checks of outputs, and the compilation of each
copy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.confirm.rules import INCUMBENT
from toolkit.live.measure.machine import describe_machine, noise_warnings, target_threads
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.race.rules import refuse_leak
from toolkit.live.tune.resume import keep_settings
from toolkit.locks import one_writer
from toolkit.networks.codegen.library import inputs_of
from toolkit.networks.compare import (
    REFERENCES,
    arm,
    check_outputs,
    compare,
    comparison_row,
    installed_runtimes,
    network_protocol,
    open_worker,
)
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.importing.files import for_runtimes, is_model_file
from toolkit.networks.legs import COMPILED, OURS, STOCK, NetworkRaceSettings, compile_copy, run_leg
from toolkit.networks.tasks import network_of, network_tasks
from toolkit.progress import SILENT, Progress
from toolkit.results import Result, plain
from toolkit.training.trained.models import load_trained

AS_GOOD = 1.01
"""A network is as good as the stock network when it takes at most this many times as long."""

TURNS_BELOW = 10.0
"""A network that takes more than this many times as long as the fastest is measured once, and not
in turns: its turns would leave no time for the others."""

RACE_FILE, SETTINGS_FILE = "race.json", "race_settings.json"


@dataclass(frozen=True, repr=False)
class NetworkRaceResult(Result):
    """Content of ``race.json``.

    Attributes
    ----------
    rows
        A row for each compiled network, in order: the arm, the seconds after which its database was
        copied, the seconds of compilation, its latency in seconds (``None``: it does not run), and
        our last network's latency over it, with interval and verdict. A network that takes more
        than ten times as long as the fastest was measured once: it has no interval.
    ratio, interval
        Our last network's latency over that of the last stock network.
    against
        Our last network compared with the installed runtimes, as ``CompileResult.against``.
    reached_s
        Seconds until our network was first as good as the last stock network, compilation included.
    s_at_most
        ``reached_s`` over the stock arm's whole time. This is an upper bound: our network is
        measured only a few times, and may have been as good earlier.
    """

    network: str
    target: str
    hardware: dict[str, Any]
    settings: dict[str, Any]
    models: list[str]
    rows: list[dict[str, Any]]
    ratio: float | None
    interval: list[float] | None
    against: list[dict[str, Any]]
    reached_s: float | None
    s_at_most: float | None
    readings_s: dict[str, list[float]]
    warnings: list[str]
    seconds: float


@one_writer
def race_network(
    network: Path,
    out: Path,
    *,
    target: str,
    settings: NetworkRaceSettings,
    models: Sequence[Path] = (),
    progress: Progress = SILENT,
) -> NetworkRaceResult:
    """Run both arms, compile their copies, and measure all networks in turns.

    Finished arms are kept: after an interruption, the same call continues.

    Raises
    ------
    LeakError
        When a model was trained on one of the network's tasks.
    LiveError
        When ``out`` holds another race, when an arm leaves no network that compiles or runs, or
        when our network computes something else.
    """
    begun = time.perf_counter()
    if not is_model_file(str(network)):
        raise LiveError(f"{str(network)!r} is not a model file", cure="give an .onnx or .pt2 file")
    out = out.resolve()  # the arms run in other folders
    kept = plain(asdict(settings))
    folders = [str(model.resolve()) for model in models]
    alike = {"network": str(network.resolve()), "target": target, "models": folders}
    raced = {key: value for key, value in kept.items() if key != "read_seconds"}
    warnings = noise_warnings(target_threads(target))
    asked = {key: kept[key] for key in ("shapes", "layout", "tolerance")}
    graph, guides = network_of(str(network), target, **asked), load_trained(list(models))
    for task in network_tasks(graph, target):
        refuse_leak(guides, task.module, target, None)
    # Settings are stored only for a race that can start: another race would stop at them.
    keep_settings(out / SETTINGS_FILE, {**alike, **raced}, "race")
    found: list[dict[str, Any]] = []
    for name, limit in ((STOCK, settings.stock_seconds), (OURS, settings.seconds)):
        with progress.step(f"tune: {name}", limit) as step:
            copies = run_leg(name, network, out / name, limit, target, settings, folders, step)
        with progress.step(f"compile: {name}", float(len(copies))) as step:
            for copy in copies:
                compiled_s = compile_copy(name, network, graph, copy, target, settings, guides)
                label = _label(name, copy["tuned_s"], found)
                found.append({**copy, "arm": name, "compile_s": compiled_s, "label": label})
                step.advance()
    readings, judged = _read(network, graph, found, out, target, settings, warnings, progress)
    rows = [_row(one, readings.get(one["label"], []), judged.get(one["label"])) for one in found]
    read = [row for row in rows if row["latency_s"] is not None]
    last = {row["arm"]: row for row in read}
    if len(last) < 2:
        missing = OURS if OURS not in last else STOCK
        raise LiveError(f"no network of {missing} runs", where=out, cure="give it more seconds")
    best = AS_GOOD * last[STOCK]["latency_s"]
    good = [row for row in read if row["arm"] == OURS and row["latency_s"] <= best]
    reached = [row["tuned_s"] + row["compile_s"] for row in good]
    result = NetworkRaceResult(
        network=graph.name,
        target=target,
        hardware=describe_machine(),
        settings=kept,
        models=folders,
        rows=rows,
        ratio=last[STOCK]["ratio"],
        interval=last[STOCK]["interval"],
        against=[judged[name] for name in installed_runtimes(network) if name in judged],
        reached_s=reached[0] if reached else None,
        s_at_most=reached[0] / settings.stock_seconds if reached else None,
        readings_s=readings,
        warnings=warnings,
        seconds=round(time.perf_counter() - begun, 2),
    )
    write_atomically(out / RACE_FILE, orjson.dumps(result.to_json(), option=orjson.OPT_INDENT_2))
    return result


def _label(name: str, tuned_s: float, before: Sequence[Mapping[str, Any]]) -> str:
    """Return the label of a network's readings; copies of the same second are numbered."""
    label = f"{name} after {tuned_s:.0f} s"
    same = sum(one["label"].startswith(label) for one in before)
    return f"{label} ({same + 1})" if same else label


def _read(
    network: Path,
    graph: Graph,
    found: Sequence[Mapping[str, Any]],
    out: Path,
    target: str,
    settings: NetworkRaceSettings,
    warnings: list[str],
    progress: Progress,
) -> tuple[dict[str, list[float]], dict[str, dict[str, Any]]]:
    """Measure all networks in turns with our last one; return readings and comparisons, by label.

    May add to ``warnings``.
    """
    inputs = inputs_of(graph.module)
    arms = {
        one["label"]: arm("tvm", (Path(one["folder"]) / COMPILED).resolve(), inputs)
        for one in found
    }
    mine = next(one["label"] for one in reversed(found) if one["arm"] == OURS)
    protocol = network_protocol(target_threads(target))
    others = {label: program for label, program in arms.items() if label != mine}
    runtimes = installed_runtimes(network)
    if runtimes:
        model = for_runtimes(network, settings.shapes, out)
        others |= {name: arm(name, model, inputs) for name in runtimes}
    for name in runtimes:
        if name in REFERENCES:
            made = arms[mine], others[name]
            _, unchecked = check_outputs(*made, target, protocol, settings.tolerance)
            if unchecked is not None:
                warnings.append(f"outputs were not compared with those of {name}: {unchecked}")
    with progress.step("measure all networks", settings.read_seconds) as step:
        once = _read_once(arms, target, protocol)
        most_s = TURNS_BELOW * min(once.values(), default=0.0)
        slow = {label: s for label, s in once.items() if s > most_s and label != mine}
        others = {label: program for label, program in others.items() if label not in slow}
        read = compare(arms[mine], others, target, settings.read_seconds, settings.seed, step)
    judged = {one.challenger: comparison_row(one, read.readings) for one in read.judgements}
    readings = {mine if label == INCUMBENT else label: s for label, s in read.readings.items()}
    readings |= {label: [s] for label, s in slow.items()}
    if mine in once:
        readings[mine] = readings[mine] or [once[mine]]  # no turns when all others are slow
        judged |= {
            label: {"ratio": once[mine] / s, "interval": None, "verdict": "faster"}
            for label, s in slow.items()
        }
    return readings, judged


def _read_once(arms: Mapping[str, Program], target: str, protocol: Protocol) -> dict[str, float]:
    """Return one measurement of each network that runs, in seconds."""
    with open_worker(target, replace(protocol, repeat=1)) as device:
        results = {label: device.measure(program) for label, program in arms.items()}
    return {label: min(one.run_times_s) for label, one in results.items() if one.run_times_s}


def _row(
    one: Mapping[str, Any], readings: Sequence[float], judged: Mapping[str, Any] | None
) -> dict[str, Any]:
    mean = math.exp(sum(map(math.log, readings)) / len(readings)) if readings else None
    found = judged or {"ratio": 1.0, "interval": None, "verdict": ""}
    return {
        "arm": one["arm"],
        "tuned_s": round(one["tuned_s"], 2),
        "compile_s": round(one["compile_s"], 2),
        "latency_s": mean,
        **{key: found[key] for key in ("ratio", "interval", "verdict")},
    }
