"""``toolkit report --follow``: the page is written again while work goes on, and ends plain."""

from __future__ import annotations

import signal
from pathlib import Path

import orjson
import pytest
from made_autotvm import write_autotvm
from polars.exceptions import ComputeError
from running import Running, here, until

from toolkit.datasets import ingest
from toolkit.reports import find_inputs, follow_report, report_summary
from toolkit.reports.sections.search import search_sections

REFRESH = "location.reload"


def made_search(folder: Path, latencies_s: list[float]) -> None:
    """A folder as ``toolkit tune`` leaves it while it goes on: one failure, then these."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tune.json").write_bytes(orjson.dumps({"strategy": "random", "target": "llvm"}))
    task = {"workload_index": 0, "name": "matmul:8,12,16", "weight": 1.0}
    (folder / "collection.json").write_bytes(orjson.dumps({"machine": "made up", "tasks": [task]}))
    readings: list[tuple[str, float]] = [("run_error", 1e10), *(("ok", s) for s in latencies_s)]
    trials = [{"state": state, "clock_s": n} for n, (state, _) in enumerate(readings)]
    records = [[0, [[], [latency_s], {}, []]] for _, latency_s in readings]
    for name, lines in (
        ("database_trials.jsonl", trials),
        ("database_tuning_record.json", records),
    ):
        (folder / name).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def test_a_search_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    made_search(tmp_path / "tuned", [4e-3, 1e-3, 2e-3])
    with (tmp_path / "tuned" / "database_tuning_record.json").open("ab") as file:
        file.write(b"[0, [[], [1e-")
    (search,) = search_sections([tmp_path / "tuned"])
    assert (search["state"], search["trials"]) == ("interrupted", 4)
    (task,) = search["tasks"]
    assert (task["trials"], task["failed"], task["best_s"]) == (4, 1, 1e-3)
    (curve,) = task["curves"]
    assert curve == {"records": 4, "at": [2, 3, 4], "relative": [0.25, 1.0, 1.0]}
    summary = report_summary(find_inputs(tmp_path))
    assert summary["searches"][0]["tasks"] == [task], "a search alone is worth a report"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("database_trials.jsonl", b"3\n"),
        ("database_tuning_record.json", b"{}\n"),
        ("database_tuning_record.json", b"[0, [[], [], {}, []]]\n" * 2),
        ("collection.json", b'{"tasks": [{"workload_index": 0, "name": "a"}]}'),
    ],
)
def test_a_damaged_search_is_one_line(tmp_path: Path, file: str, content: bytes) -> None:
    made_search(tmp_path / "tuning" / "tuned", [1e-3])
    (tmp_path / "tuning" / "tuned" / file).write_bytes(content)
    code, _, err = here("report", cwd=tmp_path)
    assert code == 1 and "tuning/tuned" in err and "toolkit tune" in " ".join(err.split())


def test_a_page_is_drawn_when_a_file_changes_and_not_else(tmp_path: Path) -> None:
    drawn: list[int] = []

    def make() -> str:
        drawn.append(len(drawn))
        return f"<html><body>{len(drawn)}</body></html>"

    place, out = tmp_path / "tuning", tmp_path / "tuning" / "report.html"
    place.mkdir()
    (place / ".lock").write_text("hidden")
    pages = follow_report(make, out, [place], interval_s=0.01, rounds=30)
    assert next(pages) == out and REFRESH in out.read_text()
    (place / "a.json").write_text("{}")
    next(pages)
    (place / ".lock").write_text("another")
    assert list(pages) == [] and len(drawn) == 2
    assert out.read_text() == "<html><body>2</body></html>"


def test_the_page_follows_the_workspace_until_it_is_interrupted(tmp_path: Path) -> None:
    running = Running("report", "--follow", "--interval", "0.1", "--json", cwd=tmp_path)
    page = tmp_path / "tuning" / "report.html"
    made_search(tmp_path / "tuning" / "tuned", [2e-3])
    assert until(lambda: page.is_file() and "matmul:8,12,16" in page.read_text(), 60.0)
    assert REFRESH in page.read_text()
    write_autotvm(tmp_path / "logs" / "log.json", [(16, 32, 7)])
    ingest([tmp_path / "logs"], tmp_path / "tuning" / "dataset", machine="made up")

    def known() -> bool:
        text = page.read_text()
        assert text.rstrip().endswith("</html>"), "nobody reads half a page"
        return text.count("made up") > 1  # the machine of the search, and that of the records

    assert until(known, 60.0)
    # A page's line comes after the page.
    assert running.process.stdout is not None
    lines = [orjson.loads(running.process.stdout.readline())]
    while "records" not in lines[-1]["dataset"]:
        lines.append(orjson.loads(running.process.stdout.readline()))
    _, said = running.end(signal.SIGINT)
    assert running.process.returncode == 130 and "interrupted" in said
    assert REFRESH not in page.read_text() and "matmul:8,12,16" in page.read_text()
    assert lines[0]["dataset"]["missing"] and lines[-1]["dataset"]["records"] > 0


def test_what_is_replaced_while_it_is_read_is_waited_for(tmp_path: Path) -> None:
    errors: list[Exception] = [FileNotFoundError(2, "gone"), ComputeError("half a file")]
    place, out = tmp_path / "tuning", tmp_path / "report.html"
    place.mkdir()

    def make() -> str:
        if errors:
            error = errors.pop()
            (place / f"{len(errors)}.json").write_text("{}")
            raise error
        return "<html><body></body></html>"

    pages = follow_report(make, out, [place], interval_s=0.01, rounds=30)
    assert next(pages) == out and not errors
    pages.close()
