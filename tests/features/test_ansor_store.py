"""Ansor's features by an older TVM: the worker's conversation, crashes, what is refused.

The suite has no such TVM: a small module ``tvm`` of the tests' own answers in its place, with the
names that the worker uses. With ``TOOLKIT_ANSOR_PYTHON`` set to an interpreter that has a real one,
the bundled Ansor log goes through it as well.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError
from toolkit.features import extract
from toolkit.features.extractors.ansor_store import AnsorStoreExtractor
from toolkit.features.extractors.per_store import STORE_COLUMNS
from toolkit.training.table.gather import gather

COLUMNS = AnsorStoreExtractor().columns()

# A TVM that extracts two stores of a record, from its first split's length. A length of 13 kills
# the process, one of 11 cannot be lowered, one of 7 cannot be read.
TVM = {
    "__init__.py": "__version__ = '0.16.made'\nprint('TVM says hello')\n",
    "auto_scheduler/__init__.py": "",
    "auto_scheduler/workload_registry.py": """
import json
REGISTRY = {}
def register_workload(function):
    REGISTRY[function.__name__] = function
    return function
def workload_key_to_tensors(key):
    return REGISTRY[json.loads(key)[0]](*json.loads(key)[1:])
""",
    "auto_scheduler/measure_record.py": """
import json
def load_record_from_string(line):
    record = json.loads(line)
    length = record["i"][1][1][0][4][0]
    if length == 7:
        raise ValueError("cannot be read")
    return length, record["r"]
""",
    "auto_scheduler/feature.py": f"""
import os
import numpy as np
def get_per_store_feature_names():
    return ["c"] * {STORE_COLUMNS}
def get_per_store_features_from_measure_pairs(inputs, results):
    if 13 in inputs:
        os._exit(1)
    rows = [np.zeros((1, {STORE_COLUMNS})) if n == 11 else np.full((2, {STORE_COLUMNS}), float(n))
            * [[1.0], [0.5]] for n in inputs]
    found = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        found[i] = row
    return found, None, None
""",
}
WORKLOADS = """
from tvm.auto_scheduler.workload_registry import register_workload
@register_workload
def matmul(n, m, k):
    print("rebuilt")
    return [n, m, k]
"""


def record(length: int, workload: str = "matmul") -> bytes:
    key = orjson.dumps([workload, 64, 64, 64]).decode()
    head = [key, "llvm -keys=cpu", [1, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    steps = [["SP", 2, 0, 64, [length], 1], ["AN", 2, 0, 3]]
    result = [[length * 1e-5], 0, 0.5, 1_600_000_000 + length]
    return orjson.dumps({"i": [head, [[], steps]], "r": result, "v": "v0.6"})


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    lines = [record(length) for length in (1, 2, 4, 7, 8, 11, 13, 16)]
    lines += [record(2, "unknown"), record(4, "unknown")]
    (tmp_path / "log.json").write_bytes(b"\n".join(lines) + b"\n")
    ingest([tmp_path / "log.json"], tmp_path / "dataset")
    return open_dataset(tmp_path / "dataset")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that finds the tests' TVM before any other."""
    for name, text in TVM.items():
        path = tmp_path / "site" / "tvm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "workloads.py").write_text(WORKLOADS)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_each_candidate_has_its_stores_folded(
    dataset: Dataset, python: Path, tmp_path: Path
) -> None:
    with AnsorStoreExtractor(python, [tmp_path / "workloads.py"]) as extractor:
        known = [t for t in dataset.tasks().values() if extractor.supports(t)]
        assert [task.workload for task in known] == ["matmul"]
        assert extractor.tvm_version == "0.16.made"
        [(key, why)] = extractor.refused.items()
        assert "unknown" in key
        assert "KeyError" in why
        result = extract(dataset, extractor, [known[0].task_id])
        assert extractor.crashes == 1
    assert result["candidates"] == 8
    # What was computed stays with the dataset: no interpreter is needed to train on it.
    table, versions = gather(dataset, "ansor-per-store")
    assert versions == {"ansor-per-store": 1}
    assert set(table.columns) == set(COLUMNS)
    place = [table.columns.index(name) for name in COLUMNS]
    values = dict(
        zip(np.round(table.latency_s * 1e5).astype(int).tolist(), table.features, strict=True)
    )
    assert sorted(values) == [1, 2, 4, 7, 8, 11, 13, 16]
    for length, row in values.items():
        if length in (7, 11, 13):
            assert np.isnan(row).all()
        else:
            stores = np.full((2, STORE_COLUMNS), float(length)) * [[1.0], [0.5]]
            assert np.array_equal(row[place], AnsorStoreExtractor().row(stores))


def test_without_an_interpreter_nothing_is_invented(dataset: Dataset) -> None:
    extractor = AnsorStoreExtractor()
    assert extractor.supports(next(iter(dataset.tasks().values())))
    with pytest.raises(DatasetError, match="--tvm-python"):
        extractor.extract(next(iter(dataset.groups()))[0])
    with pytest.raises(DatasetError, match="cannot read the candidates of any task"):
        gather(dataset, "ansor-per-store")


def test_an_interpreter_that_cannot_do_it_is_named(
    dataset: Dataset, python: Path, tmp_path: Path
) -> None:
    task = next(iter(dataset.tasks().values()))
    with pytest.raises(DatasetError, match="cannot be run"):
        AnsorStoreExtractor(tmp_path / "nowhere").supports(task)
    with pytest.raises(DatasetError, match="file of workloads does not exist"):
        AnsorStoreExtractor(python, [tmp_path / "absent.py"])
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    why = r"no usable TVM with Ansor: ModuleNotFoundError.*no_such_module"
    with pytest.raises(DatasetError, match=why):
        AnsorStoreExtractor(python, [tmp_path / "broken.py"]).supports(task)
    (tmp_path / "site" / "tvm" / "auto_scheduler" / "feature.py").write_text(
        "def get_per_store_feature_names():\n    return []\n"
    )
    with pytest.raises(DatasetError, match="extracts 0 columns"):
        AnsorStoreExtractor(python).supports(task)


@pytest.mark.skipif(
    "TOOLKIT_ANSOR_PYTHON" not in os.environ,
    reason="TOOLKIT_ANSOR_PYTHON names no interpreter with a TVM that has Ansor",
)
def test_a_real_tvm_extracts_the_bundled_log(tmp_path: Path) -> None:
    bundled = Path(__file__).resolve().parents[2] / "datasets" / "ansor-epyc-znver5-1core"
    ingest([bundled], tmp_path / "dataset")
    data = open_dataset(tmp_path / "dataset")
    with AnsorStoreExtractor(
        os.environ["TOOLKIT_ANSOR_PYTHON"], [bundled / "workloads.py"]
    ) as extractor:
        assert all(extractor.supports(task) for task in data.tasks().values())
        extract(data, extractor)
        assert extractor.crashes == 0
    table, _ = gather(data, "ansor-per-store")
    stores = table.features[:, table.columns.index("as_stores")]
    assert np.isfinite(stores[table.good]).all()
    assert (stores[table.good] >= 1).all()
