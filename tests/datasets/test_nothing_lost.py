"""Nobody's files are removed, and a dataset holds what its logs hold, whatever came before."""

from __future__ import annotations

import json
from pathlib import Path

import loglines
import pytest
from contents import contents, debris
from hypothesis import given, settings
from hypothesis import strategies as st
from running import toolkit

from toolkit.datasets import ingest, open_dataset
from toolkit.errors import DatasetError

LINES = [
    *(loglines.dump(loglines.autotvm(index=n, timestamp=n)) for n in range(5)),
    loglines.dump(loglines.ansor(timestamp=1)),
    loglines.dump(loglines.ansor(timestamp=2, key='["other", 4]')),
    b"# a comment",
    b"{broken",
]
NAMES = ["a.log", "b.log", "b/c.log", "d.log", "k.json"]


def cache(values):
    """A Kernel Tuner cache of some values of one parameter."""
    entries = {str(n): {"x": n, "time": n + 1.0, "times": [n + 1.0]} for n in values}
    return json.dumps(
        {
            "device_name": "box",
            "kernel_name": "k",
            "problem_size": [8],
            "tune_params_keys": ["x"],
            "tune_params": {"x": list(range(9))},
            "cache": entries,
        }
    ).encode()


def content(name, numbers):
    if name.endswith(".json"):
        return cache(sorted(set(numbers)))
    return b"".join(LINES[n] + b"\n" for n in numbers)


def is_log(path):
    """Whether a file holds a line of a log; what it gave before stays where it is none now."""
    return path.exists() and any(line in path.read_bytes() for line in (*LINES[:7], b'"cache"'))


numbers = st.lists(st.integers(0, len(LINES) - 1), min_size=1, max_size=8)
names = st.sampled_from(NAMES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, numbers),
        st.tuples(st.just("append"), names, numbers),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("ingest"), st.sampled_from([None, *NAMES]), st.sampled_from("AB")),
    ),
    max_size=12,
)


@settings(max_examples=120)
@given(steps)
def test_any_sequence_of_ingests_gives_what_one_clean_ingest_gives(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("any")
    logs, ds, clean = folder / "logs", folder / "ds", folder / "clean"
    (logs / "b").mkdir(parents=True)
    taken: dict[str, tuple[bytes, str]] = {}

    def take(name, machine):
        there = [n for n in NAMES if is_log(logs / n) and name in (None, n)]
        if there:
            ingest(logs if name is None else logs / name, ds, machine=machine)
            taken.update({n: ((logs / n).read_bytes(), machine) for n in there})

    for kind, name, *rest in steps:
        path = logs / (name or "")
        if kind == "ingest":
            take(name, *rest)
        elif kind == "remove":
            path.unlink(missing_ok=True)
        elif kind == "write" or name.endswith(".json"):
            path.write_bytes(content(name, *rest))
        else:
            with path.open("ab") as stream:
                stream.write(content(name, *rest))
    take(None, "A")
    for name, (data, machine) in sorted(taken.items(), key=lambda item: item[0].split("/")):
        (logs / name).write_bytes(data)  # a log that was removed was measured all the same
        ingest(logs / name, clean, machine=machine)
    if taken:
        assert contents(ds) == contents(clean)
        assert debris(ds) == set()
        again = ingest(logs, ds)
        assert (again.lines, again.unchanged) == (0, again.sources)


@pytest.mark.parametrize("how", ["rewritten", "another machine"])
def test_a_record_of_two_logs_stays_when_one_of_them_changes(tmp_path, how):
    lines = [loglines.autotvm(index=n, timestamp=n) for n in range(20)]
    one = loglines.write(tmp_path / "logs" / "a.log", *lines)
    two = loglines.write(tmp_path / "logs" / "b.log", *lines)
    ingest(tmp_path / "logs", tmp_path / "ds", machine="A")
    two.unlink()
    if how == "rewritten":
        loglines.write(one, *lines[:5])
        report = ingest(one, tmp_path / "ds")
        expected = [(5, 0), (15, 5)]
    else:
        report = ingest(one, tmp_path / "ds", machine="B")
        expected = [(20, 0), (20, 0)]
    sources = open_dataset(tmp_path / "ds").sources().sort("path")
    assert sources.select("records", "duplicates").rows() == expected
    assert report.total_records == sum(records for records, _ in expected)


@pytest.mark.parametrize("inside", [".", "records", "rejected", "duplicates"])
def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path, inside):
    log = loglines.write(tmp_path / "a.log", loglines.autotvm())
    folder = tmp_path / "m" / inside
    folder.mkdir(parents=True)
    for name in ("thesis.parquet", "job.tmp"):
        (folder / name).write_bytes(b"years of work")
    with pytest.raises(DatasetError, match="not empty, and no dataset"):
        ingest(log, tmp_path / "m")
    assert sorted(path.name for path in folder.iterdir()) == ["job.tmp", "thesis.parquet"]


def test_files_of_others_stay_in_a_dataset(tmp_path):
    log = loglines.write(tmp_path / "a.log", loglines.autotvm())
    ingest(log, tmp_path / "ds")
    kept = [tmp_path / "ds" / name for name in ("mine.parquet", "records/mine.parquet", "x.tmp")]
    for path in kept:
        path.write_bytes(b"mine")
    left = tmp_path / "ds" / "records" / "part-000009-1.parquet"
    left.write_bytes(b"of a run that was killed")
    loglines.write(log, loglines.autotvm(timestamp=3))
    ingest(log, tmp_path / "ds")
    assert [path.read_bytes() for path in kept] == [b"mine"] * 3
    assert not left.exists()


def test_the_command_refuses_the_folder_it_stands_in(tmp_path):
    loglines.write(tmp_path / "a.log", loglines.autotvm())
    code, _, told = toolkit("ingest", "a.log", "--dataset", "", cwd=tmp_path)
    assert (code, "not empty, and no dataset: it holds a.log" in told) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]


def test_a_first_run_that_was_killed_is_gone_on_with(tmp_path):
    log = loglines.write(tmp_path / "a.log", loglines.autotvm())
    folder: Path = tmp_path / "ds"
    (folder / "records").mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / "records" / "part-000001-1.parquet").write_bytes(b"half")
    (folder / ".dataset.json.77.tmp").write_bytes(b"half")
    assert ingest(log, folder).records == 1
    assert debris(folder) == set()
