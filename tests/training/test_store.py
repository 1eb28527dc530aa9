"""Models on disk: what was changed since it was written is told, and never given to a library."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from made_autotvm import write_autotvm
from made_commands import QUICK
from running import here

from toolkit.datasets import ingest, open_dataset
from toolkit.features.extractors.stored import import_features
from toolkit.locks import LOCK_FILE
from toolkit.progress import Silent
from toolkit.training.recipes.recipe import load_recipe
from toolkit.training.tasks.mutation import train_mutation
from toolkit.training.tasks.throughput import train_throughput
from toolkit.training.trained.store import FITS, KeptFits, read_manifest

XGBOOST = """
[[models]]
library = "xgboost"
rounds = 5
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a dataset and a model of two libraries."""
    folder = tmp_path_factory.mktemp("trained")
    write_autotvm(folder / "logs" / "log.json")
    dataset = ingest(folder / "logs", folder / "tuning" / "dataset", workers=0)
    assert dataset.total_records
    (folder / "two.toml").write_text(QUICK + XGBOOST)
    recipe = load_recipe(folder / "two.toml")
    data = open_dataset(folder / "tuning" / "dataset")
    train_throughput(data, recipe, folder / "tuning" / "models" / "throughput", threads=1)
    return folder


@pytest.fixture
def workplace(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "copy")
    return tmp_path / "copy"


def files_of(model: Path, ending: str) -> list[Path]:
    found = sorted(model.glob(f"members-*/*/*{ending}"))
    assert len(found) > 1
    return found


def cut(model: Path, ending: str) -> None:
    for path in files_of(model, ending):
        path.write_bytes(path.read_bytes()[:-300])


def edited(model: Path, ending: str) -> None:
    for path in files_of(model, ending):
        content = path.read_bytes()
        path.write_bytes(content.replace(b"split_feature=", b"split_feature=9").replace(b"4", b"7"))


def swapped(model: Path, ending: str) -> None:
    first, second = files_of(model, ending)[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def absent(model: Path, ending: str) -> None:
    files_of(model, ending)[0].unlink()


@pytest.mark.parametrize("ending", [".txt", ".ubj"])
@pytest.mark.parametrize("damage", [cut, edited, swapped, absent])
def test_a_file_that_is_not_as_it_was_written_ends_no_process(
    workplace: Path, damage, ending: str
) -> None:
    damage(workplace / "tuning" / "models" / "throughput", ending)
    code, _, err = here("evaluate", "tuning/models/throughput", cwd=workplace)
    assert code == 1 and "Traceback" not in err
    assert "was changed since it was written" in err or "the file is missing" in err


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["members"]["all"]["models"][0].update(weight=0),
        lambda m: m["members"]["all"]["models"][0].update(weight=5.0, slope=-1.0),
        lambda m: m["members"]["fold-0"].update(training_task_ids=[]),
        lambda m: m["files"].popitem(),
        lambda m: m.update(columns=m["columns"][::-1]),
        lambda m: m.pop("members"),
    ],
)
def test_a_manifest_that_was_edited_is_refused(workplace: Path, change) -> None:
    path = workplace / "tuning" / "models" / "throughput" / "manifest.json"
    manifest = orjson.loads(path.read_bytes())
    change(manifest)
    path.write_bytes(orjson.dumps(manifest))
    for command in (("evaluate", "tuning/models/throughput"), ("report",)):
        code, _, err = here(*command, cwd=workplace)
        assert code == 1 and "was changed since it was written" in err and "Traceback" not in err


@pytest.mark.parametrize("content", [b"[]", b"1", b"null", b"{", b"", b"\xff", b'{"a": 1}'])
def test_a_manifest_that_is_none_is_refused(workplace: Path, content: bytes) -> None:
    (workplace / "tuning" / "models" / "throughput" / "manifest.json").write_bytes(content)
    for command in (("predict", "logs"), ("simulate",)):
        code, _, err = here(*command, cwd=workplace)
        assert code == 1 and "manifest.json" in err and "Traceback" not in err


def test_trained_again_the_folder_holds_the_new_model_alone(workplace: Path) -> None:
    model = workplace / "tuning" / "models" / "throughput"
    before = {path.relative_to(model) for path in model.rglob("*") if path.is_file()}
    (model / "recipe.toml").write_text("# of the model before")
    (workplace / "other.toml").write_text(QUICK.replace("rounds = 30", "rounds = 7"))
    assert here("train", "throughput", "--recipe", "other.toml", cwd=workplace)[0] == 0
    after = {path.relative_to(model) for path in model.rglob("*") if path.is_file()}
    assert before & after == {Path("manifest.json")}
    assert len({path.parts[0] for path in after}) == 2
    assert here("evaluate", "tuning/models/throughput", cwd=workplace)[0] == 0


class Interrupted(Silent):
    """Interrupts the training once so many members are fitted."""

    def __init__(self, after: int) -> None:
        self._left = after

    def step(self, label, total=None):
        return super().step(label, total) if label != "training" else self._training()

    @contextmanager
    def _training(self):
        yield self

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "train"), [("throughput", train_throughput), ("mutation", train_mutation)]
)
def test_an_interrupted_training_goes_on_with_the_members_that_are_missing(
    trained: Path, tmp_path: Path, monkeypatch, kind: str, train
) -> None:
    data = open_dataset(trained / "tuning" / "dataset")
    (tmp_path / "quick.toml").write_text(QUICK.replace('"throughput"', f'"{kind}"'))
    recipe = load_recipe(tmp_path / "quick.toml")
    whole, out = tmp_path / "whole", tmp_path / "out"
    members = len(read_manifest(train_and_name(train, data, recipe, whole))["members"])
    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        train(data, recipe, out, threads=1, progress=Interrupted(2))
    # The fit under way ends by itself, and is kept: in another process it would be lost.
    for thread in set(threading.enumerate()).difference(before):
        thread.join()
    kept = list((out / FITS).glob("*/*/manifest.json"))
    assert 2 <= len(kept) < members and not (out / "manifest.json").exists()
    # A damaged one is fitted again.
    damaged = next(path for path in (kept[0].parent / "models").rglob("*") if path.is_file())
    damaged.write_bytes(damaged.read_bytes()[:-9])

    fitted = []
    put = KeptFits.put
    monkeypatch.setattr(
        KeptFits, "put", lambda self, name, fit: (fitted.append(name), put(self, name, fit))
    )
    train_and_name(train, data, recipe, out)
    assert len(fitted) == members - len(kept) + 1
    assert not (out / FITS).exists()
    one, other = read_manifest(whole), read_manifest(out)
    assert one["files"] == other["files"] and one["members"] == other["members"]


def test_what_another_recipe_had_fitted_is_removed(trained: Path, tmp_path: Path) -> None:
    data = open_dataset(trained / "tuning" / "dataset")
    out = tmp_path / "out"
    for rounds in (5, 6):
        (tmp_path / "quick.toml").write_text(QUICK.replace("= 30", f"= {rounds}"))
        before = threading.enumerate()
        with pytest.raises(KeyboardInterrupt):
            recipe = load_recipe(tmp_path / "quick.toml")
            train_throughput(data, recipe, out, threads=1, progress=Interrupted(1))
        # The fit under way ends by itself, and is kept: in another process it would be lost.
        for thread in set(threading.enumerate()).difference(before):
            thread.join()
        assert len(list((out / FITS).iterdir())) == 1


def test_members_are_fitted_again_where_their_features_were_replaced(
    workplace: Path, tmp_path: Path
) -> None:
    data = open_dataset(workplace / "tuning" / "dataset")
    (tmp_path / "stored.toml").write_text('extractor = "stored:made"' + QUICK)
    recipe = load_recipe(tmp_path / "stored.toml")
    ids = data.candidates()["candidate_id"]
    for seed in range(2):
        column = np.random.default_rng(seed).random(len(ids))
        made = pl.DataFrame({"candidate_id": ids, "a": column})
        made.write_parquet(tmp_path / "made.parquet")
        import_features(data, tmp_path / "made.parquet", "made")
        if seed == 0:
            before = threading.enumerate()
            with pytest.raises(KeyboardInterrupt):
                train_throughput(data, recipe, tmp_path / "out", threads=1, progress=Interrupted(2))
            for thread in set(threading.enumerate()).difference(before):
                thread.join()
    one, other = (
        read_manifest(train_and_name(train_throughput, data, recipe, tmp_path / name))
        for name in ("out", "fresh")
    )
    assert one["files"] == other["files"]


def test_a_training_that_was_killed_while_it_wrote_is_begun_again(
    workplace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for name in ("members-0123456789abcdef", ".members.99999999.tmp"):
        (out / name / "all").mkdir(parents=True)
    (out / ".manifest.json.99999999.tmp").write_bytes(b"{")
    recipe = load_recipe(workplace / "two.toml")
    train_throughput(open_dataset(workplace / "tuning" / "dataset"), recipe, out, threads=1)
    left = {path.name for path in out.iterdir() if not path.name.startswith("members-")}
    assert left <= {"manifest.json", LOCK_FILE}
    assert len(list(out.glob("members-*"))) == 1


def train_and_name(train, data, recipe, out: Path) -> Path:
    train(data, recipe, out, threads=1)
    return out
