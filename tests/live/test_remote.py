"""What is known of a device behind a tracker, and winners that are confirmed on it."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest
from running import here
from tvm import rpc

from tests.live.conftest import PROTOCOL
from tests.live.farm import KEY, Farm
from toolkit.datasets import open_dataset
from toolkit.live.measure import engines, remote
from toolkit.live.measure.fingerprint import (
    FILES,
    differences,
    fingerprint_of,
    machine_fingerprint,
)
from toolkit.live.measure.remote import Remote, linker_for
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import checked_program, timed_program
from toolkit.records import EMULATOR, MACHINE_FINGERPRINT, TrialState

AARCH64 = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 2}'
BOARD = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\nFeatures\t: fp asimd\n"


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    """One server: it has one client at a time."""
    with Farm(servers=1) as made:
        yield made


def test_a_device_tells_what_this_machine_would(farm: Farm, target: str) -> None:
    there = Remote.parse(farm.device).fingerprint(target)
    assert there is not None
    assert differences(machine_fingerprint(target), there) == []
    gone = Remote("127.0.0.1", farm.port, "no-such-key")
    assert gone.fingerprint(target) is None


def test_a_device_is_waited_for_that_another_client_just_leaves(
    farm: Farm, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Remote.parse(farm.device)
    held = [rpc.connect_tracker(device.host, device.port).request(device.key)]
    with monkeypatch.context() as patched:
        patched.setattr(remote, "FREE_S", 0.3)
        assert device.fingerprint(target) is None
    leaving = threading.Timer(1.0, held.clear)
    leaving.start()
    assert device.fingerprint(target) is not None
    leaving.join()


def test_a_device_is_free_at_once_after_it_told_its_facts(
    farm: Farm, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Remote.parse(farm.device)
    monkeypatch.setattr(remote, "FREE_S", remote.FILES_S / 2)
    gc.disable()
    try:
        assert all(device.fingerprint(target) for _ in range(2))
    finally:
        gc.enable()


def test_a_search_there_knows_the_device_and_validates_its_winner_there(
    farm: Farm, tmp_path: Path
) -> None:
    command = ("tune", "--workload", "matmul:16,16,16", "--trials", "6", "--threads", "1")
    more = ("--device", farm.device, "--strategy", "random", "--finalists", "2", "--json")
    code, said, err = here(*command, *more, cwd=tmp_path)
    assert code == 0, err + farm.said()
    (task,) = orjson.loads(said)["tasks"]
    assert task["unchecked"] is None and task["trials"] == 6
    about = orjson.loads((tmp_path / "tuning" / "tuned" / "collection.json").read_bytes())
    assert about["machine"] == KEY and about["hardware"] is None
    assert about["machine_fingerprint"]["processors"] == os.cpu_count()
    assert here("ingest", "tuning/tuned", cwd=tmp_path)[0] == 0
    (known,) = open_dataset(tmp_path / "tuning" / "dataset").tasks()
    command = ("validate", "--device", farm.device, "--seconds", "5", "--top", "2", "--json")
    # Named twice, it is validated once.
    named = ("--task", known, "--task", known[:6])
    code, said, err = here(*command, *named, "--strategy", "random", cwd=tmp_path)
    assert code in (0, 3, 4), err
    result = orjson.loads(said)
    (verdict,) = result["verdicts"]
    assert verdict["screened"] == 2 and verdict["rejected"] == [] and verdict["dropped"] == {}
    assert len({len(readings) for readings in verdict["readings_s"].values()}) == 1
    assert result["machine"] == {"device": farm.device}
    gone = ("validate", "--device", farm.device.replace(KEY, "gone"))
    code, _, err = here(*gone, cwd=tmp_path)
    assert code == 1 and "no device of the key 'gone'" in err
    code, _, err = here(*command, "--tvm-python", "python", cwd=tmp_path)
    assert code == 1 and "leave out --device" in " ".join(err.split())


def test_outputs_are_compared_on_the_device(farm: Farm, design: DesignSpace, target: str) -> None:
    drawn = design.sample(np.random.default_rng(0))
    assert drawn is not None
    right = checked_program(drawn.schedule.mod, design.inputs)
    with engines.open_engine(target, PROTOCOL, device=farm.device, builders=1) as engine:
        timed = timed_program(drawn.schedule, design.inputs)
        for _ in range(2):
            [(_, reading)] = engine.measure_many([timed])
            assert reading.state is TrialState.OK, reading.error
            # The engine's own connection would keep the only server.
            with engines.device_for_checks(engine, target, PROTOCOL) as device:
                unscheduled = checked_program(design.module, design.inputs)
                assert device.set_reference(unscheduled).state is TrialState.OK
                assert device.check(right).state is TrialState.OK


def test_an_emulator_is_told_from_a_board() -> None:
    board = fingerprint_of({"/proc/cpuinfo": BOARD}, AARCH64)
    assert board is not None and EMULATOR not in board
    assert board["processor"] == "0x41 0xd08" and board["processors"] == 1
    arm64 = fingerprint_of({"/proc/cpuinfo": BOARD, "/proc/sys/kernel/arch": "arm64\n"}, AARCH64)
    assert arm64 == board
    info = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: a processor\n"
    for files in ({}, {"/proc/sys/kernel/arch": "x86_64\n"}):
        emulated = fingerprint_of({"/proc/cpuinfo": info, **files}, AARCH64)
        assert emulated is not None and emulated[EMULATOR] == "aarch64 on x86_64"
        assert emulated["id"] != board["id"]
    # A kernel of 64 bits runs programs of 32.
    arm = AARCH64.replace("aarch64-linux-gnu", "armv7l-linux-gnueabihf").replace("a72", "a7")
    for target in (arm, AARCH64):
        files = {"/proc/cpuinfo": BOARD, "/proc/sys/kernel/arch": "aarch64\n"}
        small = fingerprint_of(files, target)
        assert small is not None and EMULATOR not in small
    assert Remote("h", 1, "board").name(None, emulated) == "board (emulated)"
    assert Remote("h", 1, "board").name("mine", board) == "mine"
    assert fingerprint_of({}, AARCH64) is None
    assert set(FILES) >= {"/proc/cpuinfo", "/proc/sys/kernel/arch"}


def test_programs_are_linked_here_where_a_compiler_for_the_device_is(
    monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    there = {"aarch64-linux-gnu-gcc": "/somewhere/aarch64-linux-gnu-gcc"}
    monkeypatch.setattr(remote.shutil, "which", there.get)
    assert linker_for(AARCH64) == there["aarch64-linux-gnu-gcc"]
    assert linker_for(AARCH64.replace("aarch64", "riscv64")) is None
    assert linker_for(target) is None


def test_an_emulator_s_records_train_no_model(tmp_path: Path) -> None:
    command = ("collect", "--workload", "matmul:16,16,16", "--trials", "6", "--threads", "1")
    code, _, err = here(*command, "--out", "logs", cwd=tmp_path)
    assert code == 0, err
    (collection,) = (tmp_path / "logs").rglob("collection.json")
    about = orjson.loads(collection.read_bytes())
    about[MACHINE_FINGERPRINT][EMULATOR] = "aarch64 on x86_64"
    collection.write_bytes(orjson.dumps(about))
    assert here("ingest", "logs", cwd=tmp_path)[0] == 0
    code, _, err = here("train", "throughput", cwd=tmp_path)
    assert code == 1 and "measured by an emulator" in " ".join(err.split())
    # What it is stays with its records on their way through an export.
    assert here("export", "again", "--format", "metaschedule", cwd=tmp_path)[0] == 0
    again = ("--dataset", "second", "--json")
    assert here("ingest", "again", *again[:2], cwd=tmp_path)[0] == 0
    code, _, err = here("train", "throughput", *again, cwd=tmp_path)
    assert code == 1 and "measured by an emulator" in " ".join(err.split())
