"""The arms of a race on a whole network: their commands, and copies of their databases."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from toolkit import children
from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.measure.machine import target_threads
from toolkit.networks import stock
from toolkit.networks.codegen.library import coverage_of, write_network
from toolkit.networks.codegen.objects import ObjectFiles
from toolkit.networks.graph.prepare import Graph, Layout
from toolkit.networks.selection import choose_in_network, read_records, scheduled
from toolkit.networks.unmeasured import add_first_picks
from toolkit.progress import SILENT, Step
from toolkit.training.trained.models import TrainedModels

STOCK, OURS = "stock", "toolkit"

SHARES = (1 / 15, 2 / 15, 4 / 15, 8 / 15, 1.0)
"""Shares of an arm's time after which its database is copied."""

CHOOSE_S, CHOOSE_SHARE = 60.0, 0.25
"""Seconds for choosing our programs in the network, as in ``toolkit compile``, and the largest
share of the tuning time that this may take."""

LEG_FILE, COMPILED = "leg.json", "compiled"

DATABASE_FILES = ("database_workload.json", "database_tuning_record.json")


@dataclass(frozen=True)
class NetworkRaceSettings:
    """What is raced, and how.

    ``seconds`` and ``stock_seconds`` are the wall clock of our arm and of the stock arm.
    ``read_seconds`` is the time for measuring all networks in blocks. ``shapes``, ``layout`` and
    ``tolerance`` are options of the network, as in ``toolkit tune``; ``tolerance`` applies to our
    arm only.
    """

    seconds: float = 900.0
    stock_seconds: float = 900.0
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    layout: Layout = "auto"
    tolerance: float = 0.0
    seed: int = 0
    read_seconds: float = 240.0


def run_leg(
    name: str,
    network: Path,
    folder: Path,
    seconds: float,
    target: str,
    settings: NetworkRaceSettings,
    models: Sequence[str],
    step: Step,
) -> list[dict[str, Any]]:
    """Run an arm until its time is over or it ends; return seconds and folder of its copies."""
    done = folder / LEG_FILE
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        database = folder / "database"
        database.mkdir(parents=True)
        into = str(database.resolve())
        command = _stock(network, target, settings, database=into)
        if name == OURS:
            command = _tune(network, into, target, settings, models)
        copies, known = [], -1
        with (folder / "leg.log").open("wb") as log:
            begun = time.perf_counter()
            process = children.start(
                command,
                environment={"TVM_NUM_THREADS": str(target_threads(target))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
            try:
                for number, share in enumerate(SHARES):
                    ended = _wait(process, begun, share * seconds, step)
                    copy = folder / f"copy-{number}"
                    tuned_s, held = time.perf_counter() - begun, copy_database(database, copy)
                    if held != known:  # a copy without new records is left out
                        copies.append({"tuned_s": tuned_s, "folder": str(copy)})
                        known = held
                    if ended:
                        break
            finally:
                children.end(process)
        if ended and process.returncode:
            said = children.last_line(folder / "leg.log")
            raise LiveError(
                f"the arm {name} ended with code {process.returncode}: {said}",
                where=folder / "leg.log",
                cure="run the same command again: finished arms are kept",
            )
        write_atomically(done, orjson.dumps(copies))
    found: list[dict[str, Any]] = orjson.loads(done.read_bytes())
    return found


def _tune(
    network: Path, into: str, target: str, settings: NetworkRaceSettings, models: Sequence[str]
) -> list[str]:
    shapes = [f"{key}={','.join(map(str, extents))}" for key, extents in settings.shapes.items()]
    options: dict[str, Sequence[str]] = {
        "--workload": [str(network.resolve())],
        "--out": [into],
        "--seconds": [f"{settings.seconds:g}"],
        "--target": [target],
        "--threads": [str(target_threads(target))],
        "--layout": [settings.layout],
        "--tolerance": [f"{settings.tolerance:g}"],
        "--seed": [str(settings.seed)],
        "--shape": shapes,
        "--model": list(models),
    }
    words = [
        word for option, values in options.items() for value in values for word in (option, value)
    ]
    return children.python("toolkit.cli.main", "tune", "--no-recorded", *words)


def _stock(network: Path, target: str, settings: NetworkRaceSettings, **folders: str) -> list[str]:
    """Return the command that tunes stock into ``database``, or compiles it into ``out``."""
    spec = {"network": str(network.resolve()), "shapes": settings.shapes, "target": target}
    return children.python(stock.MODULE, orjson.dumps({**spec, **folders}).decode())


def _wait(process: subprocess.Popen[bytes], begun: float, until: float, step: Step) -> bool:
    """Wait until ``until`` seconds after ``begun``; return whether the process ended earlier."""
    while (left := begun + until - time.perf_counter()) > 0:
        at = time.perf_counter()
        try:
            process.wait(timeout=min(left, 5.0))
        except subprocess.TimeoutExpired:
            step.advance(time.perf_counter() - at)
        else:
            return True
    return False


def copy_database(database: Path, to: Path) -> int:
    """Copy a database that is being written, without an unfinished last line.

    Returns the size of its records in bytes. An empty database is copied, too: the stock network
    then has no schedules, and ours has those that models choose.
    """
    to.mkdir(parents=True)
    # Records first: the workload of each record is written before the record.
    for name in reversed(DATABASE_FILES):
        path = database / name
        content = path.read_bytes() if path.is_file() else b""
        (to / name).write_bytes(content[: content.rfind(b"\n") + 1])
    return (to / DATABASE_FILES[1]).stat().st_size


def compile_copy(
    name: str,
    network: Path,
    graph: Graph,
    copy: Mapping[str, Any],
    target: str,
    settings: NetworkRaceSettings,
    guides: TrainedModels,
) -> float:
    """Compile one of an arm's copies as its user would; return the seconds that it took."""
    folder = Path(copy["folder"])
    done = folder / "compiled.json"
    if not done.is_file():
        begun, out = time.perf_counter(), folder / COMPILED
        out.mkdir(exist_ok=True)
        if name == STOCK:
            log = folder / "compile.log"
            command = _stock(network, target, settings, database=str(folder), out=str(out))
            if children.run_logged(command, log, cwd=folder):
                said = children.last_line(log)
                raise LiveError(f"TVM's pipeline cannot compile the network: {said}", where=log)
        else:
            selection = read_records(graph, folder, target)
            untuned = coverage_of(graph, scheduled(graph, selection, target)).untuned
            add_first_picks(graph, selection, untuned, target, guides, seed=settings.seed)
            seconds = min(CHOOSE_S, CHOOSE_SHARE * copy["tuned_s"])
            with ObjectFiles(target) as objects, SILENT.step("") as step:
                choose_in_network(graph, selection, target, seconds, objects, step)
                write_network(scheduled(graph, selection, target), target, out, objects)
        write_atomically(done, orjson.dumps(time.perf_counter() - begun))
    return float(orjson.loads(done.read_bytes()))
