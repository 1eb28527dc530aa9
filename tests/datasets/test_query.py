"""SQL on a dataset."""

from __future__ import annotations

import loglines
import pytest
from running import here

from toolkit import schema
from toolkit.cli.tables import out
from toolkit.datasets import describe, ingest, open_dataset, query, select_records
from toolkit.datasets.read.query import TABLES
from toolkit.errors import DatasetError


def test_sql(tmp_path):
    lines = [loglines.autotvm(index=n, timestamp=n) for n in range(4)]
    ingest(loglines.write(tmp_path / "a.log", *lines, b"junk"), tmp_path / "ds")
    dataset = open_dataset(tmp_path / "ds")
    counted = query(dataset, "SELECT state, COUNT(*) AS n FROM records GROUP BY state")
    assert counted.to_dicts() == [{"state": "ok", "n": 4}]
    joined = query(
        dataset,
        "SELECT t.workload, c.n_ok FROM candidates c JOIN tasks t ON c.task_id = t.task_id",
    )
    assert joined.to_dicts() == [{"workload": "dense_nopack.x86", "n_ok": 4}]
    assert query(dataset, "SELECT reason FROM rejected").height == 1
    with pytest.raises(DatasetError, match="tables are"):
        query(dataset, "SELECT nothing FROM nowhere")


@pytest.fixture
def dataset(tmp_path):
    ingest(loglines.write(tmp_path / "a.log", loglines.autotvm(), b"junk"), tmp_path / "ds")
    (tmp_path / "secret.csv").write_text("secret\n1\n")
    return open_dataset(tmp_path / "ds")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM \"read_csv\"('{secret}')",
        "SELECT * FROM `read_csv`('{secret}')",
        "SELECT * FROM READ_CSV /* ( */ ('{secret}')",
        "SELECT * FROM records, read_csv('{secret}')",
        "SELECT line FROM records WHERE line IN (SELECT secret FROM read_csv('{secret}'))",
        "WITH x AS (SELECT * FROM read_parquet('{secret}')) SELECT * FROM x",
        "SELECT $$'$$, secret FROM read_csv('{secret}') WHERE $$'$$ = $$'$$",
        "SELECT 'a\\' AS x, ' FROM read_csv({secret}) --",
        "SELECT 1 --\r FROM read_csv('{secret}')",
        "DROP TABLE records",
        "CREATE TABLE x AS SELECT * FROM records",
        "DELETE FROM records",
        "TRUNCATE TABLE records",
        "SHOW TABLES",
        "EXPLAIN SELECT line FROM records",
        "/* SELECT */ DROP TABLE records",
        "SELECT 1; DROP TABLE records",
        "",
        ";",
        "SELECT '\udcff'",
    ],
)
def test_nothing_but_a_select_on_the_tables(dataset, sql):
    with pytest.raises(DatasetError):
        query(dataset, sql.replace("{secret}", str(dataset.path.parent / "secret.csv")))


@pytest.mark.parametrize(
    "sql",
    [
        "select reason from rejected where reason <> 'read_csv(1)'",
        "SELECT line FROM records WHERE line IN (" + ",".join(map(str, range(5000))) + ")",
        "SELECT " + ", ".join(f"line AS l{n}" for n in range(1000)) + " FROM records",
        "WITH x AS (SELECT line FROM records) SELECT * FROM x;",
        "SELECT 'it''s' AS \"read_csv\" FROM records -- read_csv('x')",
        "SELECT line FROM records WHERE " + " OR ".join(f"line = {n}" for n in range(90)),
    ],
)
def test_a_select_on_the_tables(dataset, sql):
    assert query(dataset, sql).height == 1


DEEP = [
    "+".join(["1"] * 20_000),
    " OR ".join(["line = 1"] * 20_000),
    "||".join(["path"] * 20_000),
    "1" + "::INT" * 20_000,
    "CASE " + "WHEN line = 1 THEN 2 " * 20_000 + "END",
]


@pytest.mark.parametrize("deep", DEEP, ids=lambda text: text[:12])
def test_what_would_end_the_process_is_refused(dataset, deep):
    with pytest.raises(DatasetError, match="operators"):
        query(dataset, f"SELECT {deep} FROM records")
    with pytest.raises(DatasetError, match="operators"):
        select_records(dataset, where=deep)


def test_many_tables_are_refused(dataset):
    for sql in (
        " UNION ALL ".join(["SELECT line FROM records"] * 5000),
        "SELECT r.line FROM " + ", ".join(["records r"] * 5000),
    ):
        with pytest.raises(DatasetError, match="operators"):
            query(dataset, sql)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_the_columns_that_are_documented(dataset, table):
    found = query(dataset, f"SELECT * FROM {table}")
    assert dict(found.schema) == getattr(schema, table.upper())


RECORD = "SELECT record_id FROM records LIMIT 1"


@pytest.fixture
def two_machines(tmp_path):
    for machine, cpu, count in (("fast", "a", 3), ("slow", "b", 5)):
        lines = [
            loglines.autotvm(index=n, tiles=(1, 1, n + 1), timestamp=n, target=f"llvm -mcpu={cpu}")
            for n in range(count)
        ]
        (tmp_path / machine).mkdir()
        loglines.write(tmp_path / machine / "a.log", *lines, *[b"junk"] * count)
    rule = r"(?P<machine>fast|slow)/(?P<tuner>a)"
    ingest([tmp_path / "fast", tmp_path / "slow"], tmp_path / "tuning" / "dataset", path_rule=rule)
    return tmp_path


def test_one_machine_is_described_alone(two_machines):
    dataset = open_dataset(two_machines / "tuning" / "dataset")
    told = describe(dataset.of_machines(["slow"]))
    assert (told.records, told.rejected, len(told.tasks), len(told.sources)) == (5, 5, 1, 1)
    assert [row["machine"] for row in told.machines] == ["slow"]
    both = describe(dataset.of_machines(["slow", "fast"]))
    assert (both.records, both.rejected) == (8, 8)
    with pytest.raises(DatasetError, match="slov") as error:
        dataset.of_machines(["slov"])
    assert "'slow'" in str(error.value)
    code, said, _ = here("describe", "--machine", "fast", cwd=two_machines)
    assert code == 0 and "3 records" in said and "slow" not in said


def test_labels_are_reached_by_sql_and_full_cuts_nothing(two_machines):
    dataset = open_dataset(two_machines / "tuning" / "dataset")
    sql = "SELECT s.path, l.value FROM sources s JOIN labels l ON s.source_id = l.source_id"
    found = query(dataset, sql + " WHERE l.label = 'tuner'")
    assert found["value"].to_list() == ["a", "a"] and found["path"].n_unique() == 2
    sql = "SELECT schedule, occasions FROM candidates LIMIT 2"
    longest = max(query(dataset, sql)["schedule"], key=len)
    code, said, _ = here("query", sql, "--full", cwd=two_machines)
    assert code == 0 and len(longest) > 80 and longest in said
    code, said, _ = here("query", sql, cwd=two_machines)
    assert code == 0 and longest not in said


def test_a_row_that_no_terminal_holds_is_shown_a_value_a_line(two_machines, monkeypatch):
    monkeypatch.setattr(out, "_width", 80)
    code, said, _ = here("query", "SELECT * FROM records LIMIT 2", cwd=two_machines)
    (id_,) = query(open_dataset(two_machines / "tuning" / "dataset"), RECORD)["record_id"]
    assert code == 0 and f"record_id       {id_}" in said and "--full prints whole values" in said
    assert max(map(len, said.splitlines())) <= 80
    code, said, _ = here("query", "SELECT line, state FROM records LIMIT 2", cwd=two_machines)
    assert code == 0 and "--full" not in said


def test_of_a_path_in_a_table_the_end_is_shown(two_machines, monkeypatch):
    deep = two_machines / "tuning" / "dataset"
    monkeypatch.setattr(out, "_width", 200)
    sql = "SELECT '" + "d/" * 60 + "' || path AS path FROM sources"
    code, said, _ = here("query", sql, cwd=two_machines)
    paths = query(open_dataset(deep), "SELECT path FROM sources")["path"].to_list()
    assert code == 0 and "…" in said and all(path[-30:] in said for path in paths)
