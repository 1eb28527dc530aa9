"""Feature tables made elsewhere: by record or candidate, as Parquet or npz, used by a recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_autotvm import write_autotvm

from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError
from toolkit.features import cached_blocks, extractor_named
from toolkit.features.extractors.stored import import_features
from toolkit.training import load_throughput, train_throughput
from toolkit.training.recipes.recipe import DataOptions, ModelOptions, Recipe
from toolkit.training.table.gather import gather
from toolkit.training.tasks.prediction import predict

SHAPES = [(32, 64, 14), (64, 64, 14), (64, 32, 7)]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    write_autotvm(tmp_path / "logs" / "log.json", SHAPES, occasions=2, noise=0.01)
    ingest([tmp_path / "logs"], tmp_path / "dataset")
    return open_dataset(tmp_path / "dataset")


def candidates(dataset: Dataset) -> pl.DataFrame:
    """Ids and, as if somebody had computed them elsewhere, two columns of each candidate."""
    rows = dataset.candidates()
    return rows.select(
        "candidate_id",
        a=pl.col("latency_s").log() - pl.col("latency_s").log().min().over("task_id"),
        b=pl.int_range(pl.len()).cast(pl.Float64),
    )


def test_a_table_by_record_is_averaged_over_a_candidates_records(
    dataset: Dataset, tmp_path: Path
) -> None:
    records = dataset.records(["record_id", "candidate_id"]).collect()
    table = records.select("record_id", a=pl.int_range(pl.len()).cast(pl.Float64))
    table.write_parquet(tmp_path / "made.parquet")
    result = import_features(dataset, tmp_path / "made.parquet", "made")
    assert result["candidates"] == records["candidate_id"].n_unique() < records.height
    assert (result["unknown"], result["without"]) == (0, 0)
    gathered, versions = gather(dataset, "stored:made")
    assert versions == {"stored:made": 1}
    expected = records.with_columns(table["a"]).group_by("candidate_id").agg(pl.col("a").mean())
    wanted = dict(expected.iter_rows())
    assert gathered.columns == ("a",)
    for _, rows, block in cached_blocks(dataset, extractor_named("stored:made")):
        assert [wanted[c] for c in rows["candidate_id"]] == block.values[:, 0].tolist()


@pytest.mark.parametrize("layout", ["matrix", "columns"])
def test_npz_by_candidate_and_what_is_missing_is_counted(
    dataset: Dataset, tmp_path: Path, layout: str
) -> None:
    table = candidates(dataset)
    kept = table[: table.height - 40]
    ids = np.array([*kept["candidate_id"].to_list(), "f" * 16])
    matrix = np.vstack([kept.select("a", "b").to_numpy(), [[0.0, 0.0]]])
    arrays = {"features": matrix, "columns": np.array(["a", "b"])}
    if layout == "columns":
        arrays = {"a": matrix[:, 0], "b": matrix[:, 1]}
    np.savez(tmp_path / "made.npz", candidate_id=ids, **arrays)
    result = import_features(dataset, tmp_path / "made.npz", "made")
    assert (result["unknown"], result["without"]) == (1, 40)
    gathered, _ = gather(dataset, "stored:made")
    assert gathered.columns == ("a", "b")
    assert np.isnan(gathered.features).all(axis=1).sum() == 40


def test_a_recipe_trains_on_them_and_predict_reads_them(dataset: Dataset, tmp_path: Path) -> None:
    candidates(dataset).write_parquet(tmp_path / "made.parquet")
    import_features(dataset, tmp_path / "made.parquet", "made")
    recipe = Recipe(
        kind="throughput",
        extractor="stored:made",
        models=(ModelOptions(library="lightgbm", rounds=30, params={"num_leaves": 15}),),
        data=DataOptions(min_records=20, judged_records=50),
    )
    result = train_throughput(dataset, recipe, tmp_path / "model", threads=1)
    assert result["n_test_tasks"] == len(SHAPES)
    # The columns give the latency away: hardly anything is left to get wrong.
    assert result["pairwise"] > 0.95
    found = predict(load_throughput(tmp_path / "model"), dataset)
    assert found.rows.height == dataset.candidates().height

    # Candidates that came later have no such features; all others keep theirs.
    write_autotvm(tmp_path / "logs" / "more.json", [(16, 16, 7)])
    ingest([tmp_path / "logs"], tmp_path / "dataset")
    grown = open_dataset(tmp_path / "dataset")
    gathered, _ = gather(grown, "stored:made")
    assert np.isfinite(gathered.features).all()
    assert len(gathered.task_ids) == len(SHAPES)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": ["x"], "a": [1.0]}, "has no key column"),
        ({"candidate_id": ["x"], "a": [1.0]}, "none of the 1 rows"),
        ({"candidate_id": ["x"], "a": ["word"]}, "holds String, not numbers"),
        ({"record_id": ["x"]}, "no feature column, only"),
    ],
)
def test_what_cannot_be_used_is_named(
    dataset: Dataset, tmp_path: Path, columns: dict[str, list[object]], told: str
) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "made.parquet")
    with pytest.raises(DatasetError, match=told):
        import_features(dataset, tmp_path / "made.parquet", "made")


def test_files_that_are_no_tables_are_named(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such file"):
        import_features(dataset, tmp_path / "absent.parquet", "made")
    (tmp_path / "made.parquet").write_bytes(b"no parquet")
    with pytest.raises(DatasetError, match="cannot be read"):
        import_features(dataset, tmp_path / "made.parquet", "made")
    np.savez(tmp_path / "made.npz", candidate_id=np.array(["x", None], dtype=object))
    with pytest.raises(DatasetError, match="without pickled objects"):
        import_features(dataset, tmp_path / "made.npz", "made")
    with pytest.raises(DatasetError, match="no valid name for features"):
        import_features(dataset, tmp_path / "made.npz", "../made")


def spoil(path: Path, how: str) -> None:
    """Write an ``.npz`` of one row, and spoil it."""
    if how == "one array without a name":
        with path.open("wb") as file:
            np.save(file, np.zeros(1))
        return
    names = np.array("ab") if how == "one name for two columns" else np.array(["a", "b"])
    matrix = np.zeros((1, 2))
    np.savez_compressed(path, candidate_id=np.array(["x"]), features=matrix, columns=names)
    content = bytearray(path.read_bytes())
    if how == "empty":
        content.clear()
    elif how == "damaged compression":
        content[30 + content[26] + content[28]] = 0xFF  # where the first array begins
    elif how == "unknown compression":
        content[content.index(b"PK\x01\x02") + 10] = 99
    path.write_bytes(content)


def test_an_npz_that_is_none_is_named(dataset: Dataset, tmp_path: Path) -> None:
    ways = ["empty", "damaged compression", "unknown compression"]
    for how in (*ways, "one array without a name", "one name for two columns"):
        spoil(tmp_path / "made.npz", how)
        with pytest.raises(DatasetError, match=r"made\.npz: cannot be read: ."):
            import_features(dataset, tmp_path / "made.npz", "made")


def test_what_was_stored_before_is_gone_with_its_tasks(dataset: Dataset, tmp_path: Path) -> None:
    table, tasks = candidates(dataset), list(dataset.tasks())
    own = dataset.candidates(tasks[:1])["candidate_id"]
    for ids in (table["candidate_id"], own):
        kept = table.filter(pl.col("candidate_id").is_in(ids.to_list()))
        kept.write_parquet(tmp_path / "made.parquet")
        stored = import_features(dataset, tmp_path / "made.parquet", "made")
    assert stored["tasks"] == 1
    assert gather(dataset, "stored:made")[0].task_ids == (tasks[0],)


def test_features_that_cannot_be_stored_are_not_said_to_be(
    dataset: Dataset, tmp_path: Path
) -> None:
    candidates(dataset).write_parquet(tmp_path / "made.parquet")
    (dataset.path / "features").write_text("no folder")
    with pytest.raises(OSError, match="features"):
        import_features(dataset, tmp_path / "made.parquet", "made")
