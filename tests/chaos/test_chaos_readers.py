"""Hostile inputs of ingest, query and export: no traceback, and every line accounted for."""

from __future__ import annotations

import json
import os
import random
import tarfile
import zipfile
from collections import Counter

import loglines
import pytest
from kills import SEED
from typer.testing import CliRunner

from toolkit.cli.main import app

pytestmark = pytest.mark.chaos

GOOD = [loglines.dump(loglines.autotvm(timestamp=n)) for n in range(2)]
FORMATS = {
    "autotvm": loglines.autotvm(timestamp=9),
    "autotvm-old": loglines.autotvm_old(),
    "ansor": loglines.ansor(timestamp=9),
    "metaschedule": loglines.metaschedule(),
}
VALUES = (
    None, True, -1, 0, 2**63, -(2**63), 10**30, 1e308, 5e-324, -0.0, "", "\ud800", "\0", "../..",
    "[/red]", "a" * 70_000, [], [[]], {}, {"a": {"a": []}}, [None] * 300,
    json.loads("[" * 300 + "]" * 300),
)  # fmt: skip


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, (dict, list)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, key))


def put(value, path, new):
    """A copy with another value at a place."""
    value = json.loads(json.dumps(value))
    if not path:
        return new
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return value


def call(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        assert isinstance(result.exception, SystemExit), (arguments, result.exception)
    assert "Traceback" not in result.output
    return result


def use(folder, path, counts):
    """Ingest, describe, query, export and check one input."""
    ds = folder / "ds"
    result = call("ingest", path, "--dataset", ds, "--json", "--workers", 0)
    counts["inputs"] += 1
    if result.exit_code:
        assert result.exit_code == 1
        assert result.stderr.count("error:") == 1, result.stderr
        counts["refused"] += 1
        return None
    report = json.loads(result.stdout)
    assert report["lines"] == report["records"] + report["duplicates"] + report["rejected"]
    counts["lines"] += report["lines"]
    counts["rejected"] += report["rejected"]
    assert call("check", "--dataset", ds).exit_code == 0
    assert call("query", "SELECT * FROM records", "--dataset", ds, "--json").exit_code == 0
    assert call("describe", "--dataset", ds, "--json").exit_code == 0
    for form in ("t4", "kernel-tuner", "autotvm", "ansor", "metaschedule"):
        call("export", folder / form, "--format", form, "--dataset", ds)
    return report


def test_values_that_mean_no_good(tmp_path):
    rng = random.Random(f"{SEED} values")
    counts: Counter[str] = Counter()
    for name, entry in FORMATS.items():
        for number in range(40):
            line = loglines.dump(put(entry, rng.choice(list(places(entry))), rng.choice(VALUES)))
            folder = tmp_path / f"{name}-{number}"
            good = GOOD
            path = folder / "logs" / "a.log"
            if name == "metaschedule":
                good = [loglines.dump(loglines.metaschedule(costs=(n * 1e-3,))) for n in (1, 2)]
                loglines.write(folder / "logs" / "database_workload.json", loglines.workload())
                path = folder / "logs" / "database_tuning_record.json"
            loglines.write(path, good[0], line, good[1])
            report = use(folder, folder / "logs", counts)
            assert report is not None
            assert report["records"] + report["duplicates"] >= 2, report
            assert report["lines"] == 3 + (name == "metaschedule")
    print(f"hostile values: {dict(counts)}")  # noqa: T201


def test_bytes_that_mean_no_good(tmp_path):
    rng = random.Random(f"{SEED} bytes")
    counts: Counter[str] = Counter()
    for number in range(60):
        line = bytearray(loglines.dump(rng.choice(list(FORMATS.values()))))
        for _ in range(rng.choice((1, 1, 3, 30))):
            at = rng.randrange(len(line))
            change = rng.choice(("flip", "cut", "double", "random"))
            if change == "flip":
                line[at] ^= 1 << rng.randrange(8)
            elif change == "cut":
                del line[at : at + rng.randrange(20)]
            elif change == "double":
                line[at:at] = line[at : at + rng.randrange(60)]
            else:
                line[at:at] = rng.randbytes(rng.randrange(8))
            line = line or bytearray(b"x")
        data = b"\n".join((GOOD[0], bytes(line), GOOD[1])) + b"\n"
        path = tmp_path / str(number) / "a.log"
        path.parent.mkdir()
        path.write_bytes(data)
        report = use(path.parent, path, counts)
        assert report is not None
        assert report["lines"] == data.count(b"\n")
        assert report["records"] >= 2
    print(f"hostile bytes: {dict(counts)}")  # noqa: T201


def documents(rng):
    """T4 results and caches, cut off or with another value somewhere."""
    t4 = {
        "metadata": {"timeunit": "ms", "workload": "w", "arguments": [8], "machine": "m"},
        "schema_version": "1.0.0",
        "results": [
            {"configuration": {"x": n, "y": "a"}, "invalidity": "correct",
             "timestamp": "2024-01-01", "measurements": [],
             "times": {"runtimes": [1.0 + n], "compilation": 3.0}}
            for n in range(4)
        ],
    }  # fmt: skip
    cache = {
        "device_name": "d", "kernel_name": "k", "problem_size": [8], "tune_params_keys": ["x"],
        "tune_params": {"x": [0, 1, 2, 3]},
        "cache": {
            str(n): {"x": n, "time": 1.0 + n, "times": [1.0 + n], "timestamp": 5.0}
            for n in range(4)
        },
    }  # fmt: skip
    for number in range(60):
        document = rng.choice((t4, cache))
        if number % 2:
            text = json.dumps(put(document, rng.choice(list(places(document))), rng.choice(VALUES)))
            yield text.encode("utf-8", "surrogatepass")
        else:
            text = json.dumps(document).encode()
            yield text[: rng.randrange(1, len(text))]


def test_documents_that_mean_no_good(tmp_path):
    counts: Counter[str] = Counter()
    for number, data in enumerate(documents(random.Random(f"{SEED} documents"))):
        path = tmp_path / str(number) / "a.json"
        path.parent.mkdir()
        path.write_bytes(data)
        use(path.parent, path, counts)
    print(f"hostile documents: {dict(counts)}")  # noqa: T201


def test_names_and_archives_that_mean_no_good(tmp_path):
    rng = random.Random(f"{SEED} names")
    counts: Counter[str] = Counter()
    names = [
        b"bad\xff.log", b"-rf", b"a\nb.log", b"[red]x.log", b"$(id).log",
        b"'; DROP TABLE records;.log", b"a::b.log", b"\xf0\x9f\x92\xa9.log",
        b"x" * 240 + b".log", b" ", b"con", b"%s%n.log",
    ]  # fmt: skip
    for number, raw in enumerate(names):
        folder = tmp_path / f"n{number}"
        loglines.write(folder / "logs" / "good.log", GOOD[0])
        loglines.write(folder / "logs" / os.fsdecode(raw), GOOD[1])
        report = use(folder, folder / "logs", counts)
        assert report is not None
        assert report["records"] == 1 + (b"\xff" not in raw)
        with tarfile.open(folder / "x.tar", "w") as archive:
            for name in ("good.log", os.fsdecode(raw)):
                archive.add(folder / "logs" / name, name)
        (folder / "tar").mkdir()
        report = use(folder / "tar", folder / "x.tar", counts)
        assert report is not None
        # With a colon in front it could be a drive.
        assert report["records"] == 1 + (raw not in (names[0], b"a::b.log"))
    for number in range(40):
        folder = tmp_path / f"z{number}"
        folder.mkdir()
        with zipfile.ZipFile(folder / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for n, line in enumerate(GOOD):
                archive.writestr(f"{n}.log", (line + b"\n") * 3)
        data = bytearray((folder / "x.zip").read_bytes())
        for _ in range(rng.choice((1, 5))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (folder / "x.zip").write_bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
        use(folder, folder / "x.zip", counts)
    print(f"hostile names and archives: {dict(counts)}")  # noqa: T201


QUERIES = (
    "", ";", "SELECT", "SELECT *", "SELECT * FROM records r, records r", "DROP TABLE records",
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT 1/0", "SELECT CAST('x' AS INT)",
    "SELECT * FROM records WHERE", "SELECT line FROM records GROUP BY task_id", "(((((((", "'", '"',
    "SELECT " + "(" * 3000 + "1" + ")" * 3000, "SELECT " + "+".join(["1"] * 20_000),
    "SELECT " + "ABS(" * 3000 + "1" + ")" * 3000, "SELECT " + "NOT " * 3000 + "true",
    "SELECT * FROM records " + "JOIN records r ON true " * 500, "SELECT '\udcff'", "SELECT \u202e",
    "SELECT [1][99] FROM records", "SELECT * EXCLUDE (line) FROM nothing", "VALUES (1)",
    "SELECT $1",
    "SELECT SUBSTR(path, -99999999999999999999) FROM rejected", "SELECT REPEAT('x', -1)",
    "SELECT * FROM records ORDER BY 99", "SELECT * FROM records LIMIT -1", "SELECT EXP(1e308)",
    "SELECT schedule LIKE '%(((%' FROM records", "SELECT schedule ~ '(((' FROM records",
    "WITH x AS (SELECT * FROM x) SELECT * FROM x", "SELECT DATE '9999-99-99'",
    "INSERT INTO records",
    "SELECT 99999999999999999999999999999999999999999999", "SELECT INTERVAL '999999999999 years'",
    "SELECT line::uuid FROM records", "SELECT UNNEST(run_times_s), UNNEST(decisions) FROM records",
)  # fmt: skip


def test_sql_that_means_no_good(tmp_path):
    loglines.write(tmp_path / "a.log", *GOOD)
    assert call("ingest", tmp_path / "a.log", "--dataset", tmp_path / "ds").exit_code == 0
    counts: Counter[str] = Counter()
    for sql in QUERIES:
        for command in (
            ("query", sql),
            ("query", f"SELECT line FROM records WHERE {sql}"),
            ("export", tmp_path / "out.log", "--format", "autotvm", "--force", "--where", sql),
        ):
            result = call(*command, "--dataset", tmp_path / "ds")
            counts["answered" if result.exit_code == 0 else "refused"] += 1
            assert result.exit_code in (0, 1), (command, result.output)
    print(f"hostile SQL: {dict(counts)}")  # noqa: T201
