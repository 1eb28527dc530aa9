"""Core counts that models have seen, and what the commands say where a target has another."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from made_commands import QUICK, json_of
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.live.confirm import session
from toolkit.live.confirm.rules import INCUMBENT, TWIN
from toolkit.live.confirm.verdict import Confirmation
from toolkit.training import load_throughput
from toolkit.training.table.cores import core_counts, core_warnings, target_task
from toolkit.training.trained.models import TrainedModels, load_trained
from toolkit.training.trained.store import MANIFEST, seal
from toolkit.workspace import bundled

TOLD = "were trained on llvm logs of 1 core; this target has 2"
CURE = "cure: toolkit collect --threads 2"
TWO = '{"kind": "llvm", "num-cores": 2}'


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of bundled logs of one core, and one of these logs as two cores would write it."""
    folder = tmp_path_factory.mktemp("cores")
    logs = sorted((bundled("datasets") / "epyc-znver4-1core").glob("matmul-*"))
    for file in logs[0].iterdir():
        text = gzip.decompress(file.read_bytes()).decode()
        two = folder / "two" / file.name.removesuffix(".gz")
        two.parent.mkdir(exist_ok=True)
        two.write_text(text.replace('"num-cores":1', '"num-cores":2'))
    (folder / "quick.toml").write_text(QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert CliRunner().invoke(app, ["ingest", *map(str, logs)]).exit_code == 0
        trained = CliRunner().invoke(app, ["train", "throughput", "--recipe", "quick.toml"])
    assert trained.exit_code == 0, trained.output
    assert "llvm: logs of 1 core; the effect of other core counts cannot be learned" in " ".join(
        trained.output.split()
    )
    return folder


@pytest.fixture(autouse=True)
def there(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(workplace)
    yield


def test_a_model_and_a_dataset_say_which_counts_they_hold() -> None:
    manifest = orjson.loads(Path("tuning/models/throughput", MANIFEST).read_bytes())
    assert manifest["cores"] == {"llvm": [1]}
    assert json_of("describe")["cores"] == {"llvm": [1]}


def test_predict_warns_of_another_count() -> None:
    assert not any("cores" in note for note in json_of("predict")["warnings"])
    assert any(TOLD in note and CURE in note for note in json_of("predict", "two")["warnings"])
    shown = CliRunner().invoke(app, ["predict", "two"])
    assert TOLD in shown.stderr


@pytest.mark.live
def test_tune_warns_of_another_count() -> None:
    command = ["tune", "--workload", "matmul:8,8,8", "--trials", "2", "--min-repeat-ms", "1"]
    command += ["--finalists", "0", "--strategy", "random"]
    result = CliRunner().invoke(app, [*command, "--target", TWO, "--out", "t2", "--json"])
    assert result.exit_code == 0, result.output
    assert any(TOLD in warning for warning in orjson.loads(result.stdout)["warnings"])
    assert TOLD in result.stderr


@pytest.mark.live
def test_validate_warns_of_another_count(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = {name: [1e-4] * 6 for name in (INCUMBENT, TWIN)}
    monkeypatch.setattr(session, "confirm", lambda *_, **__: Confirmation(readings))
    assert CliRunner().invoke(app, ["ingest", "two", "--dataset", "ds2"]).exit_code == 0
    command = ["validate", "--dataset", "ds2", "--seconds", "5", "--top", "1"]
    command += ["--strategy", "random", "--out", "validation"]
    shown = CliRunner().invoke(app, command)
    assert TOLD in shown.stderr, shown.output
    told = orjson.loads(Path("validation", "verdicts.json").read_bytes())["warnings"]
    assert any(TOLD in warning for warning in told)


@pytest.mark.live
def test_tvms_own_tuner_warns_of_another_count() -> None:
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from toolkit import live
    from toolkit.live.space.intrinsics import load_intrinsics
    from toolkit.live.workloads.named import parse_workload

    (workload,) = parse_workload("matmul:8,8,8")
    design = live.cost_model("tuning/models/throughput")
    # TVM itself would take a minute for it when it makes the context.
    load_intrinsics(TWO)
    space = ms.TuneContext(
        mod=workload.module,
        target=tvm.target.Target(orjson.loads(TWO)),
        space_generator="post-order-apply",
        num_threads=1,
    )
    arguments = ms.arg_info.ArgInfo.from_entry_func(workload.module, remove_preproc=True)
    schedule = space.generate_design_space()[0]
    with pytest.warns(UserWarning, match=TOLD):
        design.predict(space, [ms.MeasureCandidate(schedule, arguments)])


def test_only_counts_that_are_known_on_both_sides_are_compared(tmp_path: Path) -> None:
    guides = load_trained([Path("tuning/models/throughput")])
    (warning,) = guides.warnings(TWO)
    assert CURE in warning
    assert guides.warnings("llvm -mcpu=znver4 -num-cores=2") == [warning]
    assert guides.warnings('{"kind": "llvm", "num-cores": 1}', "llvm", "cuda") == []
    assert TrainedModels().warnings(TWO) == []
    # A model that was trained before counts were kept says none.
    old = Path("tuning/models/throughput", MANIFEST)
    manifest = orjson.loads(old.read_bytes())
    del manifest["cores"]
    Path(tmp_path / "old").mkdir()
    for file in old.parent.rglob("*"):
        if file.is_file():
            copy = tmp_path / "old" / file.relative_to(old.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    (tmp_path / "old" / MANIFEST).write_bytes(orjson.dumps(seal(manifest)))
    assert core_warnings([load_throughput(tmp_path / "old")], [target_task(TWO)]) == []


def test_counts_are_those_of_cpu_targets() -> None:
    tasks = map(target_task, (TWO, "llvm -num-cores=8", "llvm", "cuda", '{"kind": "cuda"}'))
    assert core_counts(tasks) == {"llvm": [2, 8]}
    assert core_counts([target_task("llvm")]) == {"llvm": []}
