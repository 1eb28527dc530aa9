"""SQL on a dataset."""

from __future__ import annotations

import loglines
import pytest

from toolkit.datasets import ingest, open_dataset, query
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
