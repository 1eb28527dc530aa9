"""``toolkit ingest``, ``toolkit merge`` and ``toolkit check``."""

from __future__ import annotations

import re
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from toolkit.cli import common
from toolkit.cli.exit_codes import EXIT_ERROR
from toolkit.cli.tables import counted, note, out, print_table, say
from toolkit.errors import LogError, ToolkitError
from toolkit.show import plural
from toolkit.workspace import Workspace

if TYPE_CHECKING:
    from toolkit.datasets import IngestReport

TASKS_FOLLOWED = 5
SKIPPED_SHOWN = 5


def ingest(
    logs: Annotated[list[Path], typer.Argument(help="Log files, or folders that hold them.")],
    dataset: common.DatasetDir = None,
    machine: Annotated[str | None, Option(help="Name of the machine that was measured.")] = None,
    path_rule: Annotated[
        str | None, Option(help="Regular expression on paths; named groups become labels.")
    ] = None,
    workers: Annotated[
        int | None,
        Option(
            min=0, max=common.PROCESSES_MAX, help="Reading processes (default: by size and cores)."
        ),
    ] = None,
    cluster: common.ClusterPlace = None,
    shard: Annotated[
        str | None,
        Option(help="I/N: only the I-th of N shards of the files; 'toolkit merge' joins them."),
    ] = None,
    follow: Annotated[
        bool, Option("--follow", help="Keep reading what is added, until interrupted.")
    ] = False,
    interval: common.Interval = 2.0,
    json: common.Json = False,
) -> None:
    """Read tuning logs into the dataset.

    AutoTVM, Ansor, MetaSchedule, T4 and Kernel Tuner logs are recognised by their content.
    Compressed files and archives (.gz, .zst, .xz, .zip, .tar) are read as they are. Folders are
    read with their subfolders. Ingesting again adds only what is new.

    Example: toolkit ingest logs/ --machine "Ryzen 3700X"
    """
    from toolkit.datasets import ingest as run

    folder = dataset or Workspace().dataset
    labels: dict[str, Any] = {"machine": machine, "path_rule": path_rule}
    part = parse_shard(shard)
    if follow:
        if part is not None or cluster is not None:
            raise ToolkitError(
                "--follow reads all files in this process", cure="leave out --shard and --cluster"
            )
        _follow(logs, folder, {**labels, "workers": workers}, interval, json)
        return
    progress = common.BarProgress()
    with common.workers_or_cluster(workers, cluster, progress) as found:
        report = run(logs, folder, **labels, workers=found, shard=part, progress=progress)
    common.answer(report, json, _show_ingest)
    # A shard may hold only workloads of databases whose records are in other shards.
    if report.lines and not report.total_records and part is None:
        what = f"none of {plural(report.lines, 'line')} is a record"
        raise LogError(what, cure=common.SEE_WHY)


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """Read ``I/N``; raise ``ToolkitError`` for other texts."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ToolkitError(f"--shard {text!r} is not I/N", cure="--shard 2/5 is the second of five")
    return int(found[1]), int(found[2])


def merge(
    datasets: Annotated[
        list[Path],
        typer.Argument(parser=common.folder_at, metavar="DATASETS...", help="Folders, or URLs."),
    ],
    folder: Annotated[
        Path | None,
        common.FolderOption(
            "--out", help="Dataset to merge into, or its URL (default: tuning/dataset)."
        ),
    ] = None,
    json: common.Json = False,
) -> None:
    """Merge datasets, as if one ingest had read all of their logs.

    A log that several datasets have read is taken once. A record that several logs hold counts as
    a duplicate. A later ingest into the result continues where the earlier ones stopped.

    Example: toolkit merge shard-1 shard-2 --out tuning/dataset
    """
    from toolkit.datasets import merge as run

    report = run(datasets, folder or Workspace().dataset, progress=common.BarProgress())
    common.answer(report, json, _show_ingest)


def _show_ingest(report: IngestReport) -> None:
    read = [source for source in report.per_source if source.outcome != "skipped"]
    kinds = ("lines", "records", "duplicates", "rejected")
    counts = [
        (name, len(own), *(sum(getattr(source, kind) for source in own) for kind in kinds))
        for name in sorted({source.format for source in read})
        for own in [[source for source in read if source.format == name]]
    ]
    heads = {f">{head}": counted(n) for n, head in enumerate(("files", *kinds), start=1)}
    print_table({"format": itemgetter(0), **heads}, counts, box=None)
    if report.unchanged:
        out.print(f"{report.unchanged:,} files were ingested before and have not changed")
    for reason, count in report.reasons.items():
        out.print(f"rejected {count:,}: {reason}", highlight=False, soft_wrap=True)
    for source in report.per_source:
        if source.outcome == "damaged":
            note(f"{source.path}: {source.message}; the part before the damage was kept", "yellow")
        elif source.outcome == "read" and source.message:
            note(f"{source.path}: {source.message}", "yellow")
    for file in report.skipped[:SKIPPED_SHOWN]:
        note(f"not read: {file.path}: {file.reason}", "yellow")
    if (more := len(report.skipped) - SKIPPED_SHOWN) > 0:
        note(f"not read: {more:,} more files (--json lists them)", "yellow")
    out.print(
        f"{report.records:,} records added in {report.seconds:.1f} s; the dataset "
        f"{report.dataset} holds {report.total_records:,} records of "
        f"{plural(report.total_tasks, 'task')}"
    )
    if report.machines_unknown:
        out.print(
            f"the machine of {plural(report.machines_unknown, 'task')} is unknown: "
            "name it with --machine or --path-rule"
        )
    if report.total_records:
        say("next: toolkit describe", "bold")


def _follow(
    logs: list[Path], folder: Path, options: dict[str, Any], interval: float, json: bool
) -> None:
    """Print what each check added and the best so far; with --json, one object per line."""
    from toolkit.datasets import follow, open_dataset
    from toolkit.datasets.describe import best_so_far

    for report in follow(logs, folder, **options, interval_s=interval):
        best = best_so_far(open_dataset(folder))
        if json:
            common.print_json({**report, "best": best}, indent=False)
            continue
        out.print(
            f"{report.records:,} new records, {report.duplicates:,} duplicates, "
            f"{report.rejected:,} rejected; {report.total_records:,} in all"
        )
        for task in best[:TASKS_FOLLOWED]:
            latency = task["best_latency_s"]
            value = "none" if latency is None else f"{latency * 1e6:,.1f} µs"
            say(
                f"  {task['task_id'][:8]} {task['name'][:50]}: best {value} "
                f"after {task['records']:,} records"
            )


def check(dataset: common.DatasetDir = None, json: common.Json = False) -> None:
    """Compare every file of the dataset with the checksum that was stored when it was written.

    Exit code 1 says that a file is damaged or missing.

    Example: toolkit check
    """
    from toolkit.datasets.read.integrity import check as run

    report = run(dataset or Workspace().dataset)
    common.answer(report, json, _show_check)
    if report["damaged"]:
        raise typer.Exit(EXIT_ERROR)


def _show_check(report: Any) -> None:
    say(f"{report['files']:,} files of {report['size_bytes'] / 2**20:,.1f} MiB compared")
    for entry in report["damaged"]:
        note(f"{entry['file']}: {entry['why']}")
    if not report["damaged"]:
        say(f"all {report['records']:,} records are as they were written")
