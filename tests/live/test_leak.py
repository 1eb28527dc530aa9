"""A race's models never saw what is raced, whatever it is called: from logs to legs."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest
from running import here, toolkit
from traps import set_traps, sprung

from toolkit.datasets import open_dataset
from toolkit.errors import LeakError, LiveError
from toolkit.live.measure.machine import default_target
from toolkit.live.race.rules import refuse_leak
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.networks.tasks import tasks_of
from toolkit.training import load_throughput
from toolkit.training.members.crossfit import ALL, Member, pick_member
from toolkit.training.table.table import workload_key
from toolkit.training.trained import scorer
from toolkit.training.trained.models import TrainedModels

RECIPE = """
kind = "throughput"
[data]
min_records = 3
judged_records = 3
[[models]]
library = "lightgbm"
rounds = 5
"""
LOGGED = ("matmul:16,16,16", "matmul:16,16,32", "conv2d_bias_relu:1,4,4,8,8,3,1,1")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of three workloads that ``toolkit collect`` measured and named, and a model of them."""
    folder = tmp_path_factory.mktemp("leak")
    wanted = [word for each in LOGGED for word in ("--workload", each)]
    command = ("collect", *wanted, "--trials", "6", "--threads", "1", "--machine", "theirs")
    assert here(*command, "--out", folder / "logs", cwd=folder)[0] == 0
    (folder / "quick.toml").write_text(RECIPE)
    assert here("ingest", "logs", cwd=folder)[0] == 0
    code, _, err = here("train", "throughput", "--recipe", "quick.toml", cwd=folder)
    assert code == 0, err
    return folder


def live_task(workload: str):
    """The task as a search meets it: it has no name, and another machine."""
    (task,) = tasks_of([workload], default_target(1))
    return MetaScheduleSpace(DesignSpace(task.module, default_target(1)), machine="mine").task


@pytest.mark.parametrize(
    ("raced", "twin"),
    [
        ("matmul:16,16,16", "matmul:16,16,16"),
        ("conv2d_bias_relu:1,4,4,8,8,3,1,1", "conv2d_bias_relu:1,4,4,8,8,3,1,1"),
        # The same convolution with another epilogue, and a product by another name.
        ("conv2d_bias:1,4,4,8,8,3,1,1", "conv2d_bias_relu:1,4,4,8,8,3,1,1"),
        ("dense_bias:16,16,16", "matmul:16,16,16"),
        ("matmul:16,32,16", None),
    ],
)
def test_the_member_that_guides_never_saw_what_is_raced(
    workspace: Path, raced: str, twin: str | None
) -> None:
    dataset = open_dataset(workspace / "tuning" / "dataset")
    by_name = {task.workload: task for task in dataset.tasks().values()}
    assert set(by_name) == set(LOGGED)
    model, task = load_throughput(workspace / "tuning" / "models" / "throughput"), live_task(raced)
    member, leaked = model.choose_member(task)
    assert not leaked
    if twin is None:
        assert member.name == ALL
        return
    known = by_name[twin]
    assert task.workload != known.workload and task.task_id != known.task_id
    assert (
        workload_key(task) == workload_key(known) == workload_key(model.known_task(known.task_id))
    )
    assert known.task_id not in member.training_task_ids and member.name != ALL


def test_a_model_whose_every_member_saw_it_is_refused(workspace: Path) -> None:
    model = load_throughput(workspace / "tuning" / "models" / "throughput")
    guides = TrainedModels(throughput=model)
    (task,) = tasks_of(["matmul:16,16,16"], default_target(1))
    refuse_leak(guides, task.module, default_target(1), "mine")
    for name in list(model.members):
        if name != ALL:
            del model.members[name]
    with pytest.raises(LeakError, match="was trained on"):
        refuse_leak(guides, task.module, default_target(1), "mine")


@pytest.mark.parametrize("split", ["task", "machine"])
def test_a_validation_is_guided_by_a_member_that_never_saw_the_task(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    """Its log under another machine's name; or its own one, compiled for another target."""
    for name in ("mine",) if split == "task" else ("mine", "theirs"):
        logs = Path(shutil.copytree(workspace / "logs", tmp_path / "logs" / name))
        for about in logs.rglob("collection.json"):
            about.write_bytes(about.read_bytes().replace(b'"theirs"', b'"%s"' % name.encode()))
    assert here("ingest", "logs", cwd=tmp_path)[0] == 0
    model = workspace / "tuning" / "models" / "throughput"
    if split == "machine":
        model = tmp_path / "model"
        command = ("train", "throughput", "--recipe", workspace / "quick.toml", "--split", split)
        assert here(*command, "--out", model, cwd=tmp_path)[0] == 0
    tasks = open_dataset(tmp_path / "tuning" / "dataset").tasks().values()
    task = next(each for each in tasks if each.machine == "mine")
    picked: list[Member] = []

    def pick(members, of):
        picked.append(pick_member(members, of))
        raise LiveError("picked")

    monkeypatch.setattr(scorer, "pick_member", pick)
    command = ("validate", "--model", model, "--task", task.task_id, "--top", "1")
    other = ("--target", '{"kind": "llvm", "num-cores": 1}', "--seconds", "60")
    code, _, err = here(*command, *other, cwd=tmp_path)
    assert code == 1 and "picked" in err
    assert not picked[0].saw(task)


@pytest.mark.chaos
def test_a_race_holds_the_proof_and_imports_nothing_from_the_current_folder(
    workspace: Path, tmp_path: Path
) -> None:
    trapped = Path(shutil.copytree(workspace, tmp_path / "trapped"))
    set_traps(trapped)
    command = ("race", "--workload", "matmul:16,16,16", "--trials", "2", "--seeds", "1")
    more = ("--threads", "1", "--blocks", "0", "--stock-build-timeout", "240", "--json")
    code, said, err = toolkit(*command, *more, cwd=trapped)
    assert code == 0, err
    (proof,) = orjson.loads(said)["unseen"]
    assert (proof["task"], proof["model"]) == ("matmul:16,16,16", "throughput")
    assert proof["identity"] not in proof["trained_on"] and len(proof["trained_on"]) >= 2
    # It holds a search of the toolkit and one of TVM, each with processes of its own.
    assert sprung(trapped) == []
