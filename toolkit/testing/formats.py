"""Requirements for every log format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolkit.datasets import Dataset, IngestReport, export, ingest, open_dataset
from toolkit.errors import DatasetError, ToolkitError
from toolkit.logs.formats import FORMATS
from toolkit.logs.read.detect import detect
from toolkit.logs.rows.format import DocumentFormat, LineFormat
from toolkit.testing.suite import Suite


class FormatConformance(Suite):
    """Tests on logs of the format: override the fixture ``log``.

    The format must be registered, by an entry point or by ``FORMATS.add``.
    """

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        """A good log (or a folder of files that belong together) with at least three records."""
        raise NotImplementedError("override the fixture 'log': it returns the path of a log")

    def _ingested(self, log: Path, folder: Path) -> tuple[IngestReport, Dataset]:
        return ingest(log, folder), open_dataset(folder)

    def test_it_says_what_it_is(self, plugin: Any) -> None:
        assert issubclass(plugin, (LineFormat, DocumentFormat))
        assert plugin.__doc__
        assert FORMATS.get(plugin.name) is plugin

    def test_its_files_are_recognised_by_content(self, plugin: Any, log: Path) -> None:
        names = {detect(path.read_bytes(), "x") for path in _files(log)}
        assert plugin.name in names
        assert names <= {plugin.name, getattr(plugin, "companion", "")}

    def test_every_line_is_accounted_for(self, log: Path, tmp_path: Path, plugin: Any) -> None:
        report, dataset = self._ingested(log, tmp_path / "dataset")
        assert report.lines == report.records + report.duplicates + report.rejected
        frame = dataset.records().collect()
        assert frame.height == report.records >= 3
        sketches, tasks = dataset.sketches(), dataset.tasks()
        for row in frame.iter_rows(named=True):
            assert tasks[row["task_id"]].format == plugin.name
            assert len(row["decisions"]) == sketches[row["sketch_id"]].width
            assert (row["state"] == "ok") == (row["latency_s"] is not None)

    def test_the_same_log_again_changes_nothing(self, log: Path, tmp_path: Path) -> None:
        first, dataset = self._ingested(log, tmp_path / "dataset")
        again, after = self._ingested(log, tmp_path / "dataset")
        assert again.records == 0
        assert again.total_records == first.total_records
        assert after.fingerprint() == dataset.fingerprint()

    def test_damage_is_rejected_and_never_raised(self, log: Path, tmp_path: Path) -> None:
        """A log that is cut off anywhere, or has odd bytes, gives records or reasons."""
        (path,) = [path for path in _files(log) if path.stat().st_size][-1:]
        data = path.read_bytes()
        for number, at in enumerate(range(1, len(data), max(1, len(data) // 12))):
            for damaged in (data[:at], data[:at] + b"\xff" + data[at + 1 :]):
                path.write_bytes(damaged)
                try:
                    report = ingest(log, tmp_path / f"dataset-{number}-{len(damaged)}", workers=0)
                except ToolkitError as error:
                    assert error.what
                    continue
                assert report.lines == report.records + report.duplicates + report.rejected
                assert all(source.reasons or not source.rejected for source in report.per_source)

    def test_what_is_written_is_read_again(self, plugin: Any, log: Path, tmp_path: Path) -> None:
        """An export of its records gives the same candidates, or says that it cannot be made."""
        _, dataset = self._ingested(log, tmp_path / "dataset")
        out = tmp_path / "exported" / "log.json"
        if plugin.writes is not None and plugin.name not in plugin.writes:
            with pytest.raises(DatasetError):
                export(dataset, out, plugin.name)
            return
        export(dataset, out, plugin.name)
        _, again = self._ingested(out.parent, tmp_path / "again")
        assert _candidates(again) == _candidates(dataset)


def _files(log: Path) -> list[Path]:
    return sorted(path for path in log.rglob("*") if path.is_file()) if log.is_dir() else [log]


def _candidates(dataset: Dataset) -> set[str]:
    return set(dataset.records(["candidate_id"]).collect()["candidate_id"])
