"""What an ingest did, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SourceReport:
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
    message: str | None = None
    cure: str | None = None
    reasons: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys."""
        return {
            "path": self.path,
            "format": self.format,
            "outcome": self.outcome,
            "lines": self.lines,
            "records": self.records,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "message": self.message,
            "reasons": dict(sorted(self.reasons.items())),
        }


@dataclass
class IngestReport:
    """Sums over the files of one run; ``lines == records + duplicates + rejected``."""

    dataset: str
    per_source: list[SourceReport] = field(default_factory=list)
    seconds: float = 0.0
    peak_rss_bytes: int = 0
    total_records: int = 0
    total_tasks: int = 0
    machines_unknown: int = 0

    def _sum(self, name: str) -> int:
        return sum(getattr(source, name) for source in self.per_source)

    @property
    def lines(self) -> int:
        """Lines read in this run."""
        return self._sum("lines")

    @property
    def records(self) -> int:
        """Records added in this run."""
        return self._sum("records")

    @property
    def duplicates(self) -> int:
        """Lines whose record the dataset held already."""
        return self._sum("duplicates")

    @property
    def rejected(self) -> int:
        """Lines that are no record."""
        return self._sum("rejected")

    @property
    def sources(self) -> int:
        """Files that are logs (read now or unchanged)."""
        return sum(source.outcome != "skipped" for source in self.per_source)

    @property
    def nothing(self) -> bool:
        """Whether not a line could be read, now or before."""
        read = ("read", "unchanged")
        return not any(source.lines or source.outcome in read for source in self.per_source)

    @property
    def unchanged(self) -> int:
        """Logs that were ingested before and did not change since."""
        return sum(source.outcome == "unchanged" for source in self.per_source)

    @property
    def skipped(self) -> list[SourceReport]:
        """Files that are no logs, with the reason."""
        return [source for source in self.per_source if source.outcome == "skipped"]

    @property
    def reasons(self) -> dict[str, int]:
        """Why lines were rejected, most frequent first."""
        total: dict[str, int] = {}
        for source in self.per_source:
            for reason, count in source.reasons.items():
                total[reason] = total.get(reason, 0) + count
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    @property
    def records_per_second(self) -> float:
        """Records and duplicates over the run's wall time."""
        done = self.records + self.duplicates
        return done / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys."""
        return {
            "dataset": self.dataset,
            "lines": self.lines,
            "records": self.records,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "sources": self.sources,
            "unchanged": self.unchanged,
            "seconds": self.seconds,
            "records_per_second": self.records_per_second,
            "peak_rss_bytes": self.peak_rss_bytes,
            "reasons": self.reasons,
            "skipped": [{"path": s.path, "reason": s.message} for s in self.skipped],
            "total_records": self.total_records,
            "total_tasks": self.total_tasks,
            "machines_unknown": self.machines_unknown,
            "per_source": [source.to_dict() for source in self.per_source],
        }
