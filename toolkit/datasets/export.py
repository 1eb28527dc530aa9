"""Export: records of a dataset as logs that TVM or Kernel Tuner read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from toolkit import show
from toolkit.atomic import write_together
from toolkit.datasets.manifest import cannot_write
from toolkit.datasets.read.open import Dataset
from toolkit.datasets.read.query import select_records
from toolkit.datasets.read.rows_out import check_targets
from toolkit.errors import DatasetError, did_you_mean
from toolkit.logs.formats import FORMATS, format_named
from toolkit.logs.rows.format import Selection
from toolkit.records import MACHINE_FINGERPRINT
from toolkit.results import Result


@dataclass(frozen=True, repr=False)
class ExportReport(Result):
    """What was written; ``left_out`` counts selected records that the format cannot hold.

    These are records of other formats, and repeats if a file has one entry per candidate.
    """

    format: str
    files: list[str]
    records: int
    tasks: int
    left_out: int


def export(
    dataset: Dataset,
    out: str | Path,
    format: str | None = None,
    *,
    task_ids: Sequence[str] | None = None,
    top: int | None = None,
    where: str | None = None,
    machines: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    mixed: bool = False,
    force: bool = False,
) -> ExportReport:
    """Write a selection of records (see ``select_records``).

    Parameters
    ----------
    out
        A file for ``autotvm`` (0.2) and ``ansor`` (v0.6); a folder for ``metaschedule`` (a
        database), ``t4`` and ``kernel-tuner`` (one file per task and sketch).
    format
        A format that can be written; by default the format of the selected records. Records that
        it cannot hold are counted and left out.
    machines
        Only records of these machines.
    targets
        Only records for these targets, as written or by their kind (``llvm``).
    mixed
        Whether one log may hold records of several machines, or for several targets. A tuner that
        reads such a log takes the fastest record as the best.
    force
        Whether existing files are overwritten (see ``check_targets``).

    Raises
    ------
    DatasetError
        When the format, a machine or a target is unknown; machines or targets would be mixed
        without ``mixed``; no selected record can be written in the format; no format is given and
        the records have several; or a file must not or cannot be written.
    """
    known = [name for name in FORMATS.names() if format_named(name).writes != frozenset()]
    if format is not None and format not in known:
        raise DatasetError(
            f"no export format is called {format!r}", cure=did_you_mean(format, known)
        )
    whole = dataset  # the logs of other machines must not be overwritten either
    if machines:
        dataset = dataset.of_machines(machines)
    if targets:
        task_ids = _for_targets(dataset, targets, task_ids)
    rows = select_records(dataset, task_ids=task_ids, top=top, where=where)
    found = sorted(set(rows["format"]))
    if format is None and len(found) > 1:
        raise DatasetError(
            f"the selected records are of several formats: {', '.join(found)}",
            cure="choose one with --format; t4 and kernel-tuner can hold records of every format",
        )
    format = format or str(found[0])
    writes = format_named(format).writes
    fitting = rows if writes is None else rows.filter(pl.col("format").is_in(list(writes)))
    if fitting.is_empty():
        own = f"{found[0]}, or as t4" if found[0] in known else "t4"
        raise DatasetError(
            f"no selected record can be written as {format}: their formats are {', '.join(found)}",
            cure=f"export them as {own}",
        )
    labels = dataset.source_labels()
    if writes is not None and not mixed:
        _refuse_mixed(dataset, fitting, labels)
    selection = Selection(
        _Rows(fitting), dataset.tasks(), dataset.sketches(), dataset.manifest.space_sizes, labels
    )
    files = format_named(format).write(selection, Path(out))
    check_targets(files, whole, force=force)
    try:
        for folder in {path.parent for path in files}:
            folder.mkdir(parents=True, exist_ok=True)
        write_together(files)
    except OSError as error:
        cure = "make room on the disk, or write to another place"
        raise cannot_write(error.filename or out, error, cure) from None
    written = fitting.height
    if not format_named(format).repeats:
        written = fitting.select("task_id", "candidate_id").n_unique()
    return ExportReport(
        format=format,
        files=list(map(str, files)),
        records=written,
        tasks=fitting["task_id"].n_unique(),
        left_out=rows.height - written,
    )


def _for_targets(
    dataset: Dataset, targets: Sequence[str], task_ids: Sequence[str] | None
) -> list[str]:
    """Return the given tasks (default: all) that are for the targets; refuse unknown targets."""
    tasks = dataset.tasks()
    asked = list(tasks) if task_ids is None else [dataset.task(key).task_id for key in task_ids]
    known = {target for key in asked for target in (tasks[key].target, tasks[key].target_kind)}
    for target in targets:
        if target not in known:
            raise DatasetError(
                f"no task is for a target {target!r}",
                where=dataset.path,
                cure=did_you_mean(target, known),
            )
    return [key for key in asked if {tasks[key].target, tasks[key].target_kind} & set(targets)]


def _refuse_mixed(
    dataset: Dataset, rows: pl.DataFrame, labels: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise ``DatasetError`` where records are of several machines or for several targets."""
    tasks = [dataset.tasks()[key] for key in set(rows["task_id"])]
    told = {labels.get(key, {}).get(MACHINE_FINGERPRINT) for key in set(rows["source_id"])}
    by_source = f'--where "source_id = ..." (label {MACHINE_FINGERPRINT!r} in the table labels)'
    for what, found, cure in (
        ("of several machines", {task.machine or "unknown" for task in tasks}, "--machine"),
        ("of several machines with the same name", {name for name in told if name}, by_source),
        ("for several targets", {task.target for task in tasks}, "--target"),
    ):
        if len(found) > 1:
            names = ", ".join(show.cut(name, 120) for name in sorted(found)[:5])
            raise DatasetError(
                f"the selected records are {what}: {names}",
                cure=f"choose one with {cure}, or write all with --mixed (the log mixes them)",
            )


class _Rows:
    """Rows of a frame as mappings; can be iterated several times."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._frame.iter_rows(named=True)
