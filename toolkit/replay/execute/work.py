"""Work whose pieces are stored when done; missing pieces are made, here or on a cluster.

Pieces do not depend on each other or on their order, so that the files are the same for any number
of processes and after any interruption.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from toolkit import children
from toolkit.atomic import write_atomically
from toolkit.cluster import Cluster
from toolkit.errors import ToolkitError
from toolkit.progress import Progress
from toolkit.records import content_id
from toolkit.replay.record.models import StrategyModels, guides_of
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario
from toolkit.training.trained.models import TrainedModels

Name = tuple[str, ...]
"""Name of a piece of work: its kind, one more part, and the parts that progress shows."""


@dataclass
class ReplayContext:
    """Inputs of all work, sent once to each process; ``tables`` only for work that names tasks.

    ``folder`` holds one complete file for each finished piece. Spaces and scores of the latest
    tasks are kept in memory.
    """

    scenario: Scenario
    models: TrainedModels
    folder: Path
    tables: Mapping[str, RecordedTable] = field(default_factory=dict)
    _guided: dict[str, tuple[RecordedSpace, StrategyModels]] = field(
        default_factory=dict, init=False
    )

    def path(self, name: Name, suffix: str = ".json") -> Path:
        """File of a piece; with another suffix, a further file that is written before it."""
        return self.folder / f"{content_id(*name)}{suffix}"

    def guided(self, *tables: RecordedTable) -> list[tuple[RecordedSpace, StrategyModels]]:
        """Return the space of each task, and the models that guide a search of it."""
        known, self._guided = self._guided, {}
        for table in tables:
            task_id = table.task.task_id
            if task_id not in known:
                space = RecordedSpace(table)
                known[task_id] = space, guides_of(self.models, space)
            self._guided[task_id] = known[task_id]
        return list(self._guided.values())


@dataclass(frozen=True)
class Work:
    """Pieces that one process makes one after the other, since they share inputs.

    ``make`` can be pickled and returns the result of a piece, JSON-ready; ``size`` is relative.
    """

    names: Sequence[Name]
    size: int
    make: Callable[[ReplayContext, Name], Any]

    def do(self, context: ReplayContext) -> Iterator[Name]:
        """Make and store all pieces; yield the name of each when it is done."""
        for name in self.names:
            write_atomically(context.path(name), orjson.dumps(self.make(context, name)))
            yield name


def finish(
    title: str,
    works: Sequence[Work],
    context: ReplayContext,
    progress: Progress,
    workers: int | Cluster = 1,
) -> dict[Name, Any]:
    """Make all missing pieces; return the stored result of every piece, in order.

    ``workers`` is a number of processes on this machine, or a cluster.
    """
    files = {name: context.path(name) for work in works for name in work.names}
    missing = {name for name, path in files.items() if not path.is_file()}
    todo = [replace(w, names=[n for n in w.names if n in missing]) for w in works]
    todo = [work for work in todo if work.names]
    with progress.step(title, len(files)) as step:
        done = len(files) - len(missing)
        step.advance(done, note="resumed" if done else None)
        # The largest first, so that no large one begins when the other processes are done.
        ordered = sorted(todo, key=lambda work: -work.size)
        made: Iterator[Name] = (name for work in todo for name in work.do(context))
        if isinstance(workers, Cluster):
            made = _on_cluster(ordered, context, workers)
        elif min(workers, len(todo)) > 1:
            made = _in_processes(ordered, context, min(workers, len(todo)))
        for name in made:
            step.advance(note=" ".join(name[2:]))
    return {name: orjson.loads(path.read_bytes()) for name, path in files.items()}


def _in_processes(works: Sequence[Work], context: ReplayContext, count: int) -> Iterator[Name]:
    waiting = deque(works)
    busy: dict[Connection, Popen[bytes]] = {}
    with ExitStack() as stack:
        for _ in range(count):
            ours, theirs = Pipe()
            process = children.start(
                children.python("toolkit.replay.execute.worker", str(theirs.fileno())),
                # Processes share the machine: threads of libraries would only slow them.
                environment=dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
                pass_fds=(theirs.fileno(),),
            )
            stack.callback(ours.close)
            stack.callback(children.end, process)
            theirs.close()
            busy[ours] = process
        for ours, process in busy.items():
            with _alive(process):
                ours.send(sys.path)
                ours.send(replace(context))  # without its spaces
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                with _alive(busy[pipe]):
                    found = pipe.recv()
                if isinstance(found, Exception):
                    raise found
                if found is not None:
                    yield found
                elif waiting:
                    with _alive(busy[pipe]):
                        pipe.send(waiting.popleft())
                else:
                    del busy[pipe]


def _on_cluster(works: Sequence[Work], context: ReplayContext, cluster: Cluster) -> Iterator[Name]:
    for work, files in cluster.results(_made_there, replace(context), works):
        for name, suffix, content in files:
            write_atomically(context.path(name, suffix), content)
        yield from work.names


def _made_there(context: ReplayContext, work: Work) -> list[tuple[Name, str, bytes]]:
    """Make all pieces in a temporary folder; return their files, each result after the rest."""
    found = []
    with TemporaryDirectory() as folder:
        there = replace(context, folder=Path(folder))
        for name in work.do(there):
            last = there.path(name)
            beside = [path for path in last.parent.glob(f"{last.stem}.*") if path != last]
            found += [(name, path.suffix, path.read_bytes()) for path in (*beside, last)]
    return found


@contextmanager
def _alive(process: Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise ToolkitError(
            f"a worker process ended early (exit code {process.wait()})",
            cure="finished work is kept: run the same command again, or with --workers 1",
        ) from None
