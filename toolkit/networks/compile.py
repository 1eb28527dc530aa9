"""Compiles a prepared network with a database, checks its outputs, and measures its latency."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from toolkit.atomic import replacing, write_atomically
from toolkit.errors import LiveError
from toolkit.live.confirm.rules import INCUMBENT
from toolkit.live.confirm.verdict import Confirmation
from toolkit.live.measure.machine import describe_machine, target_threads
from toolkit.live.measure.program import Program
from toolkit.live.space.database import read_collection
from toolkit.live.tune.tune import RESULT_FILE, SETTINGS_FILE
from toolkit.locks import one_writer
from toolkit.networks.codegen.library import (
    FACTS,
    LIBRARY,
    coverage_of,
    flops_of,
    inputs_of,
    write_network,
    write_runner,
)
from toolkit.networks.codegen.objects import ObjectFiles
from toolkit.networks.compare import (
    REFERENCES,
    RUNTIMES,
    alone_s,
    arm,
    check_outputs,
    comparison_row,
    installed_runtimes,
    network_protocol,
    read_networks,
    unsteady,
)
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.importing.files import for_runtimes
from toolkit.networks.kernels import function_of, profile
from toolkit.networks.peak import peak_gflop_per_s
from toolkit.networks.selection import MOST, choose_in_network, read_records, scheduled
from toolkit.networks.unmeasured import add_first_picks
from toolkit.progress import SILENT, Progress
from toolkit.results import Result
from toolkit.training.trained.models import TrainedModels

KERNELS_S = 3.0
"""Seconds for measuring the time of each kernel."""


@dataclass(frozen=True, repr=False)
class CompileResult(Result):
    """Result of compiling a network.

    Attributes
    ----------
    functions, tuned, untuned
        Number of functions, number of those that use a tuned record, and names of the others.
    unmeasured
        The functions among ``untuned`` that use a program that was chosen but never measured.
    moved
        Functions that use another program than the one that was fastest when measured alone.
    checked_against, difference
        The reference for the outputs (``None``: not compared), and the largest difference from it,
        as a share of the range.
    latency_s
        Latency of the whole network when it runs alone: the median run of a fresh process, lower
        quartile over processes; ``None``: not measured.
    processes_s
        The median run of each of these processes.
    tasks_latency_s
        The latency that the tuning result predicts: the sum of each task's latency times the number
        of its calls.
    against
        A row for each other network: its latency alone, and the ratio of this network's latency to
        it, with interval. The ratio is measured in turns.
    kernels
        For each kernel, slowest first: mean seconds a run, and floating-point operations (10^9 a
        second; ``None``: unknown).
    peak_gflop_per_s
        Peak of the processor with as many threads: multiply-adds in registers.
    """

    out: str
    network: str
    layout: str
    target: str
    threads: int
    inputs: list[dict[str, Any]]
    functions: int
    tuned: int
    untuned: list[str]
    unmeasured: list[str]
    moved: list[str]
    checked_against: str | None
    difference: float | None
    latency_s: float | None
    processes_s: list[float]
    tasks_latency_s: float | None
    against: list[dict[str, Any]]
    kernels: list[dict[str, Any]]
    peak_gflop_per_s: float | None
    machine: dict[str, Any]
    seconds: float
    warnings: list[str]


@one_writer
def compile_network(
    graph: Graph,
    out: Path,
    *,
    database: Path | None,
    target: str,
    model: Path | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    against: Sequence[str] | None = None,
    guides: TrainedModels | None = None,
    choose_seconds: float = 60.0,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress = SILENT,
) -> CompileResult:
    """Compile a network into ``out``, check its outputs, and measure it beside others.

    Parameters
    ----------
    database
        Folder of a MetaSchedule database; ``None`` compiles without one.
    model, shapes
        The model file, and the shapes of its dynamic inputs. The file is the reference for the
        outputs, and the other runtimes run it.
    against
        Names of ``RUNTIMES`` and folders of other compiled networks; ``None``: the installed
        runtimes.
    guides
        Models that choose a program for each function without a record (``add_first_picks``);
        ``None``: these functions stay unscheduled.
    choose_seconds
        Seconds for measuring the best programs of each function inside the network; 0: take the
        program that was fastest alone.
    seconds
        Seconds for the comparison; 0: the outputs are checked, and nothing is measured.

    Raises
    ------
    LiveError
        When the network cannot be compiled, or its outputs are wrong. A network that is already in
        ``out`` is then kept.
    """
    begun = time.perf_counter()
    threads, inputs = target_threads(target), inputs_of(graph.module)
    protocol, mine = network_protocol(threads), arm("tvm", out.resolve(), inputs)
    with TemporaryDirectory() as folder, ObjectFiles(target) as objects:
        if model is not None:
            model = for_runtimes(model, shapes or {}, Path(folder))
        others = _others(against, model, inputs, out)
        out.mkdir(parents=True, exist_ok=True)
        facts = dict[str, Any](network=graph.name, target=target, threads=threads, inputs=inputs)
        selection = read_records(graph, database, target)
        coverage = coverage_of(graph, scheduled(graph, selection, target))
        if guides is not None:
            add_first_picks(
                graph, selection, coverage.untuned, target, guides, seed=seed, progress=progress
            )
        if choose_seconds > 0:
            with progress.step("measure the programs in the network", float(MOST)) as step:
                choose_in_network(graph, selection, target, choose_seconds, objects, step)
        with progress.step(f"compile {graph.name}", 1.0) as step:
            module = scheduled(graph, selection, target)
            covered = coverage_of(graph, module)
            draft = Path(folder) / "draft"
            draft.mkdir()
            write_network(module, target, draft, objects)
            step.advance()
        with progress.step("check the outputs", 1.0) as step:
            known = [name for name in installed_runtimes(model) if name in REFERENCES]
            reference = known[0] if known else "the unscheduled network"
            if known:
                program = arm(reference, model or "", inputs)
            else:
                write_network(graph.module, target, Path(folder), objects)
                program = arm("tvm", folder, inputs)
            made = arm("tvm", draft, inputs)
            difference, unchecked = check_outputs(made, program, target, protocol, graph.tolerance)
            step.advance()
        # Only a network with correct outputs replaces an older one.
        with replacing(out / LIBRARY) as unfinished:
            shutil.move(draft / LIBRARY, unfinished)
        write_atomically(out / FACTS, orjson.dumps(facts, option=orjson.OPT_INDENT_2))
        write_runner(out)
        read, alone = Confirmation(), dict[str, list[float]]()
        if seconds > 0:
            with progress.step("measure the whole network", seconds) as step:
                read, alone = read_networks(mine, others, target, seconds, seed, step)
    own = alone.get(INCUMBENT, [])
    promised_s = None if database is None else _beside(database, RESULT_FILE, "weighted_latency_s")
    count = len(coverage.tuned) + len(coverage.untuned)
    unmeasured = [name for name in coverage.untuned if name in covered.tuned]
    warnings = _untuned_warnings(coverage.untuned, unmeasured, count, database)
    if unchecked is not None:
        warnings.append(f"outputs were not compared with those of {reference}: {unchecked}")
    warnings += [f"{name} does not run: {error}" for name, error in read.dropped.items()]
    warnings += unsteady(own)
    result = CompileResult(
        **facts,
        out=str(out),
        layout=graph.layout,
        functions=count,
        tuned=len(coverage.tuned),
        untuned=coverage.untuned,
        unmeasured=unmeasured,
        moved=sorted(name for name, position in selection.chosen.items() if position),
        checked_against=reference if unchecked is None else None,
        difference=difference,
        latency_s=alone_s(own),
        processes_s=own,
        tasks_latency_s=promised_s,
        against=[
            comparison_row(one, read.readings, alone_s(alone[one.challenger]))
            for one in read.judgements
        ],
        kernels=_kernels(graph, out, threads) if seconds > 0 else [],
        peak_gflop_per_s=peak_gflop_per_s(target, threads) if seconds > 0 else None,
        machine=describe_machine(),
        seconds=round(time.perf_counter() - begun, 2),
        warnings=warnings,
    )
    # Facts that the runner needs, and the results.
    content = {**facts, **result.to_json()}
    write_atomically(out / FACTS, orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return result


def _others(
    against: Sequence[str] | None, model: Path | None, inputs: list[dict[str, Any]], out: Path
) -> dict[str, Program]:
    """Return the arms that the network is compared with, by name."""
    installed = installed_runtimes(model)
    found = {}
    for name in installed if against is None else against:
        if name in RUNTIMES:
            if model is None or model.suffix != RUNTIMES[name]:
                kind = "ONNX" if RUNTIMES[name] == ".onnx" else RUNTIMES[name]
                raise LiveError(f"{name} reads only {kind} files", cure="give the network as one")
            if name not in installed:
                raise LiveError(f"{name} is not installed", cure=f"pip install {name}")
            found[name] = arm(name, model, inputs)
        elif Path(name).resolve() == out.resolve():
            raise LiveError(f"--against {name!r} is the output folder", cure="give another --out")
        elif (Path(name) / LIBRARY).is_file():
            found[name] = arm("tvm", Path(name).resolve(), inputs)
        else:
            raise LiveError(
                f"--against {name!r} is neither a runtime nor a compiled network",
                cure=f"give {', '.join(RUNTIMES)}, or a folder that 'toolkit compile' wrote",
            )
    return found


def _kernels(graph: Graph, out: Path, threads: int) -> list[dict[str, Any]]:
    """Return a row for each kernel, slowest first; none if the network does not run."""
    rows: list[dict[str, Any]] = next(iter(profile([out], threads, KERNELS_S)), [])
    for row in rows:
        del row["ratio"]  # its ratio to itself
        flops = flops_of(graph, function_of(row["kernel"]))
        rate = None if flops is None else 1e-9 * flops * row["calls"] / row["seconds"]
        row["gflop_per_s"] = rate
    return rows


def _untuned_warnings(
    untuned: Sequence[str], unmeasured: Sequence[str], count: int, database: Path | None
) -> list[str]:
    if not untuned:
        return []
    if len(untuned) == count:
        why = "no database was given"
        if database is not None:
            why = "was the database made from this network, with this target and layout?"
        found = f"none of {count} functions uses a tuned record: {why}"
    else:
        names = ", ".join(untuned[:4]) + (" and others" if len(untuned) > 4 else "")
        found = f"{len(untuned)} of {count} functions use no tuned record: {names}"
    more = f"{len(unmeasured)} of these use a program that was not measured"
    return [found, more] if unmeasured else [found]


def tuned_target(database: Path) -> str | None:
    """Return the target that a search wrote into the folder of its database."""
    found = read_collection(database).get("target")
    return found if isinstance(found, str) else None


def tuned_tolerance(database: Path) -> float:
    """Return the error that a search allowed in its network; 0 if it is not recorded."""
    return _beside(database, SETTINGS_FILE, "tolerance") or 0.0


def _beside(database: Path, name: str, key: str) -> float | None:
    """Return the number under ``key`` in a file of a database's folder; ``None`` if missing."""
    try:
        found = orjson.loads((database / name).read_bytes()).get(key)
    except (OSError, orjson.JSONDecodeError, AttributeError):
        return None
    return float(found) if isinstance(found, int | float) else None
