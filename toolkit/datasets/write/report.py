"""What an ingest did, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.results import Result

COUNTS = ("lines", "records", "duplicates", "rejected")


@dataclass(frozen=True, repr=False, kw_only=True)
class SourceReport(Result):
    """What became of one file in this run.

    ``outcome``: ``read`` (new, grown or changed), ``unchanged``, ``skipped`` (not a log; see
    ``message``) or ``damaged`` (read as far as it could be).
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
    """A file that is no log, and why."""

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
    machines_unknown: int  # tasks whose machine nobody named
    per_source: list[SourceReport]

    @classmethod
    def of(cls, files: Sequence[SourceReport], *, seconds: float, **known: Any) -> IngestReport:
        """Sum up over files."""
        reasons: Counter[str] = Counter()
        for file in files:
            reasons.update(file.reasons)
        sums = {name: sum(getattr(file, name) for file in files) for name in COUNTS}
        skipped = [file for file in files if file.outcome == "skipped"]
        done = sums["records"] + sums["duplicates"]
        return cls(
            **sums,
            **known,
            sources=len(files) - len(skipped),
            unchanged=sum(file.outcome == "unchanged" for file in files),
            seconds=seconds,
            records_per_second=done / seconds if seconds > 0 else 0.0,
            reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            skipped=[SkippedFile(file.path, file.message) for file in skipped],
            per_source=list(files),
        )
