"""The report of an ingest."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from toolkit.datasets.write.store import Store
from toolkit.results import Result

COUNTS = ("lines", "records", "duplicates", "rejected")


@dataclass(frozen=True, repr=False, kw_only=True)
class SourceReport(Result):
    """Outcome of one file in this run.

    ``outcome``: ``read`` (new, grown or changed), ``unchanged``, ``skipped`` (not read; see
    ``message``) or ``damaged`` (read as far as possible).
    """

    path: str
    format: str
    outcome: str
    lines: int = 0
    records: int = 0
    duplicates: int = 0
    rejected: int = 0
    message: str | None
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class SkippedFile(Result):
    """A file that was not read, and why."""

    path: str
    reason: str | None


@dataclass(frozen=True, repr=False, kw_only=True)
class IngestReport(Result):
    """Sums over the files of one run; ``lines == records + duplicates + rejected``."""

    dataset: str
    lines: int  # read in this run
    records: int  # added in this run
    duplicates: int  # lines whose record the dataset held already
    rejected: int  # lines that are no record
    sources: int  # files that are logs (read now or unchanged)
    unchanged: int  # logs that were ingested before and did not change since
    seconds: float
    records_per_second: float  # records and duplicates over the run's wall time
    peak_rss_bytes: int
    reasons: dict[str, int]  # why lines were rejected, most frequent first
    skipped: list[SkippedFile]
    total_records: int
    total_tasks: int
    machines_unknown: int  # tasks whose machine is unknown
    per_source: list[SourceReport]

    @classmethod
    def of(
        cls, files: Sequence[SourceReport], store: Store, begun: float, workers: int = 0
    ) -> IngestReport:
        """Make the report of a run that started at ``begun`` (``time.perf_counter``)."""
        seconds = time.perf_counter() - begun
        reasons: Counter[str] = Counter()
        for file in files:
            reasons.update(file.reasons)
        sums = {name: sum(getattr(file, name) for file in files) for name in COUNTS}
        skipped = [file for file in files if file.outcome == "skipped"]
        done = sums["records"] + sums["duplicates"]
        return cls(
            **sums,
            dataset=str(store.folder),
            sources=len(files) - len(skipped),
            unchanged=sum(file.outcome == "unchanged" for file in files),
            seconds=seconds,
            records_per_second=done / seconds if seconds > 0 else 0.0,
            peak_rss_bytes=peak_rss_bytes(workers),
            reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            skipped=[SkippedFile(file.path, file.message) for file in skipped],
            total_records=sum(part.rows for part in store.manifest.records),
            total_tasks=len(store.tasks),
            machines_unknown=sum(task.machine is None for task in store.tasks.values()),
            per_source=list(files),
        )


def peak_rss_bytes(workers: int = 0) -> int:
    """Peak resident memory so far, in bytes (0 if the system does not give it).

    The sum of this process and its reading processes. Each of these is counted with the peak of
    the largest child, so the sum is an upper bound.
    """
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak += workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
