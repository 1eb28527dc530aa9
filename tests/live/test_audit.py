"""An audit tells winners that hold from those that are beaten, fail, or cannot be rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from tests.live.conftest import PROTOCOL
from toolkit.cli.main import app
from toolkit.datasets import export, ingest, open_dataset
from toolkit.errors import DatasetError, LiveError
from toolkit.live.confirm.audit import audit
from toolkit.live.measure.fingerprint import differences, machine_fingerprint
from toolkit.live.space.recorded import Recorded
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tune import tune
from toolkit.logs.rows.format import FAILURE_S
from toolkit.networks.tasks import tasks_of
from toolkit.progress import Silent, Step, Values
from toolkit.records import MACHINE_FINGERPRINT
from toolkit.training.trained.models import TrainedModels

RECORDS, WORKLOADS = "database_tuning_record.json", "database_workload.json"
SETTINGS = TuneSettings(trials=12, strategy="random", finalists=0, check=False)


def tune_into(
    out: Path,
    target: str,
    settings: TuneSettings = SETTINGS,
    names: Sequence[str] = ("matmul:96,96,96",),
) -> None:
    tune(
        tasks_of(list(names), target),
        out,
        target=target,
        protocol=PROTOCOL,
        settings=settings,
        guides=TrainedModels(),
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, target: str) -> Path:
    """A database of a dozen random programs of one product."""
    out = tmp_path_factory.mktemp("audited") / "tuned"
    tune_into(out, target)
    return out


@pytest.fixture
def database(tuned: Path, tmp_path: Path) -> Path:
    """A copy of it that may be changed."""
    return Path(shutil.copytree(tuned, tmp_path / "tuned"))


def edit_records(database: Path, seconds_of: dict[int, float]) -> None:
    """Give records other run times, by place."""
    lines = [orjson.loads(line) for line in (database / RECORDS).read_bytes().splitlines()]
    for place, seconds in seconds_of.items():
        lines[place][1][1] = [seconds]
    (database / RECORDS).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def by_speed(database: Path) -> list[int]:
    """Places of the records that went well, fastest first."""
    lines = [orjson.loads(line) for line in (database / RECORDS).read_bytes().splitlines()]
    good = [place for place, line in enumerate(lines) if line[1][1][0] < 1e8]
    return sorted(good, key=lambda place: sum(lines[place][1][1]) / len(lines[place][1][1]))


def test_the_best_of_random_programs_holds(database: Path) -> None:
    # The slowest stays beside it. The others were read once, maybe in another order than theirs.
    edit_records(database, dict.fromkeys(by_speed(database)[1:-1], FAILURE_S))
    before = (database / RECORDS).read_bytes()
    found = audit(database, margin=0.5)
    (winner,) = found.winners
    assert winner.finding == "holds" and (found.holds, found.lost, found.unknown) == (1, 0, 0)
    assert winner.line == by_speed(database)[0] + 1 and winner.name == "matmul:96,96,96"
    assert winner.recorded_s is not None and winner.now_s is not None
    assert found.differs == [] and (database / RECORDS).read_bytes() == before
    assert orjson.loads((database / "audit.json").read_bytes()) == found.to_json()


def test_a_winner_that_a_lucky_reading_named_is_beaten(database: Path) -> None:
    order = by_speed(database)
    # The slowest program, said to be the fastest.
    edit_records(database, {order[-1]: 1e-9})
    found = audit(database, top=2)
    (winner,) = found.winners
    assert winner.finding == "beaten" and found.lost == 1
    assert (winner.line, winner.better_line) == (order[-1] + 1, order[0] + 1)
    assert winner.ratio is not None and winner.interval is not None
    assert winner.interval[0] <= winner.ratio <= winner.interval[1] < 1 / 1.05


def of_another_block(trace: Any) -> None:
    """Let the first instruction ask for a block that is not there."""
    first = next(step for step in trace[0] if step[0] == "GetSBlock")
    first[2][0] = "nothing"


def beyond_its_end(trace: Any) -> None:
    """Decide an instruction that is not there."""
    trace[1].append([10**6, [1, 1]])


@pytest.mark.parametrize("broken", [of_another_block, beyond_its_end])
def test_a_winner_that_is_refused_now_fails(broken: Callable[[Any], None], database: Path) -> None:
    lines = [orjson.loads(line) for line in (database / RECORDS).read_bytes().splitlines()]
    broken(lines[by_speed(database)[0]][1][0])
    (database / RECORDS).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    (winner,) = audit(database, top=1).winners
    assert winner.finding == "fails" and winner.why == "TVM refuses its schedule"


def test_a_lost_workload_is_unknown_and_a_lost_database_is_said(
    database: Path, tmp_path: Path
) -> None:
    (database / WORKLOADS).write_bytes(b"")
    found = audit(database)
    assert found.unknown == 1
    assert found.winners[0].why == "the line of its workload is missing in database_workload.json"
    with pytest.raises(LiveError, match="no MetaSchedule database"):
        audit(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    (database / RECORDS).write_bytes(b"")
    with pytest.raises(LiveError, match="no successful record"):
        audit(database)


def no_pair(content: list[Any]) -> None:
    content[0] = [[]]


def no_threads(content: list[Any]) -> None:
    content[2]["num-cores"] = "x"


@pytest.mark.parametrize("broken", [no_pair, no_threads])
def test_a_damaged_record_is_left_out(broken: Callable[[Any], None], database: Path) -> None:
    first, second, *_ = by_speed(database)
    lines = [orjson.loads(line) for line in (database / RECORDS).read_bytes().splitlines()]
    broken(lines[first][1])
    (database / RECORDS).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    # Nothing is measured without the workload.
    (database / WORKLOADS).write_bytes(b"")
    (winner,) = audit(database).winners
    assert winner.line == second + 1


def test_the_command_says_what_no_longer_holds(database: Path) -> None:
    order = by_speed(database)
    edit_records(database, {order[-1]: 1e-9})
    said = CliRunner().invoke(app, ["audit", str(database), "--top", "2"])
    assert said.exit_code == 3, said.output
    assert "beaten" in said.output and "0 of 1 winner hold" in said.output


class Interrupting(Silent):
    """A progress during which the user presses Ctrl-C, once a workload is done."""

    @contextmanager
    def step(self, label: str, total: float | None = None) -> Iterator[Step]:
        yield self

    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_audit_keeps_what_it_found(tmp_path: Path, target: str) -> None:
    out = tmp_path / "tuned"
    settings = replace(SETTINGS, round_size=4)  # so that each task has its turn
    tune_into(out, target, settings, ("matmul:96,96,96", "matmul:64,64,64"))
    with pytest.raises(KeyboardInterrupt):
        audit(out, top=1, progress=Interrupting())
    kept = orjson.loads((out / "audit.json").read_bytes())
    assert len(kept["winners"]) == kept["unread"] == 1
    assert kept["winners"][0]["now_s"] > 0
    assert audit(out, top=1).unread == 0


def moved(database: Path, fact: str, value: object) -> None:
    """Let a database say that another machine measured it."""
    about = orjson.loads((database / "collection.json").read_bytes())
    told = about[MACHINE_FINGERPRINT]
    about[MACHINE_FINGERPRINT] = {**told, fact: value, "id": "another"}
    (database / "collection.json").write_bytes(orjson.dumps(about))


def test_a_search_does_not_go_on_with_another_machines_records(database: Path, target: str) -> None:
    moved(database, "caches", ["L1 Data 1K"])
    before = (database / RECORDS).read_bytes()
    with pytest.raises(LiveError, match="a machine with other caches"):
        tune_into(database, target, TuneSettings(**{**vars_of(SETTINGS), "trials": 14}))
    assert (database / RECORDS).read_bytes() == before
    assert audit(database, top=1).differs == ["caches"]


def vars_of(settings: TuneSettings) -> dict[str, object]:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def test_fingerprints_follow_records_into_a_dataset_and_out_again(
    database: Path, tuned: Path, tmp_path: Path, target: str
) -> None:
    here = machine_fingerprint(target)
    ingest([tuned], tmp_path / "one")
    labels = open_dataset(tmp_path / "one").labels()
    assert labels.select("label", "value").rows() == [(MACHINE_FINGERPRINT, here["id"])]
    export(open_dataset(tmp_path / "one"), tmp_path / "out", "metaschedule")
    ingest([tmp_path / "out"], tmp_path / "again")
    assert open_dataset(tmp_path / "again").labels()["value"].to_list() == [here["id"]]

    edit_records(database, {place: 1e-3 + place for place in by_speed(database)})
    moved(database, "clock", "governor other")
    ingest([tuned, database], tmp_path / "two")
    both = open_dataset(tmp_path / "two")
    assert len(both.tasks()) == 1
    with pytest.raises(DatasetError, match=r"several machines with the same name: .*another"):
        export(both, tmp_path / "mixed", "metaschedule")
    assert export(both, tmp_path / "mixed", "metaschedule", mixed=True).records > 12


def test_a_recorded_task_of_another_fingerprint_is_another_machines(
    database: Path, tuned: Path, tmp_path: Path, target: str
) -> None:
    moved(database, "clock", "governor other")
    for folder, same in ((tuned, True), (database, False)):
        ingest([folder], tmp_path / folder.parent.name)
        dataset = open_dataset(tmp_path / folder.parent.name)
        (task,) = dataset.tasks().values()
        (known,) = Recorded(dataset).of(task)
        assert known.same_machine is same


def test_a_fingerprint_stays_and_names_what_differs(target: str) -> None:
    one, two = machine_fingerprint(target), machine_fingerprint(target)
    assert one == two and differences(one, two) == []
    assert one["processor"] and one["processors"] >= 1 and one["compiler"].startswith("TVM ")
    assert differences(one, {**one, "clock": "held", "id": "x"}) == ["clock"]
    assert "gpu" in machine_fingerprint("cuda") and "gpu" not in one
