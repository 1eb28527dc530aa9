"""Ingest under kills, two writers, a full disk, flipped bits, and readers beside a writer."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import loglines
import pytest
from contents import contents, debris
from kills import KILLS, SEED, killed_or_ended
from running import Running, toolkit

from toolkit.datasets import check, ingest, open_dataset
from toolkit.datasets import manifest as manifests
from toolkit.errors import DatasetError

pytestmark = pytest.mark.chaos

SMALL = """
import sys
import toolkit.datasets.write.open_parts, toolkit.logs.files.files
toolkit.datasets.write.open_parts.PART_LINES = 400
toolkit.logs.files.files.BLOCK_BYTES = 60_000
from toolkit.cli.main import main
main()
"""
"""The command with small blocks and parts, so that there is much to interrupt."""


class Small(Running):
    """A run of the command with small parts."""

    def __init__(self, *arguments, cwd):
        self.mark = os.urandom(8).hex()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SMALL, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "TOOLKIT_TEST_RUN": self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def write_logs(folder, rng, count=1500):
    """Logs of all kinds; some lines stand in several, some are damaged."""
    lines = [loglines.dump(loglines.autotvm(index=n, timestamp=n)) for n in range(count)]
    loglines.write(folder / "a.log", *lines[: 2 * count // 3], b"{broken", b"# a comment")
    loglines.write(folder / "b.log", *rng.sample(lines, count // 2))
    loglines.write(folder / "c.json", *(loglines.ansor(timestamp=n) for n in range(count)))
    loglines.write(folder / "ms" / "database_workload.json", loglines.workload())
    costs = (1e-3 + n * 1e-7 for n in range(count // 4))
    loglines.write(
        folder / "ms" / "database_tuning_record.json",
        *(loglines.metaschedule(costs=(cost,)) for cost in costs),
    )


def rewrite(folder, rng):
    """Change some of the logs as users do; write them anew where little is left."""
    if any(path.stat().st_size < 20_000 for path in folder.glob("*.*")):
        write_logs(folder, rng)
    for path in (folder / "a.log", folder / "b.log", folder / "c.json"):
        lines = path.read_bytes().splitlines(keepends=True)
        change = rng.choice(("cut", "grow", "none", "shuffle"))
        if change == "cut":
            lines = lines[: rng.randint(1, len(lines))]
        elif change == "grow":
            lines.append(loglines.dump(loglines.autotvm(timestamp=rng.random())) + b"\n")
        elif change == "shuffle":
            rng.shuffle(lines)
        path.write_bytes(b"".join(lines))


def whole(folder):
    """What was committed is whole."""
    if (folder / manifests.FILE).exists():
        opened = open_dataset(folder)
        records = opened.records().collect()
        assert records["record_id"].n_unique() == records.height
        assert set(records["task_id"]) <= set(opened.tasks())
        assert set(records["sketch_id"]) <= set(opened.sketches())


@pytest.mark.parametrize("workers", [0, 2])
def test_ingests_that_are_killed(tmp_path, workers):
    rng = random.Random(f"{SEED} ingest {workers}")
    logs, ds = tmp_path / "logs", tmp_path / "ds"
    write_logs(logs, rng)
    command = ("ingest", logs, "--dataset", "ds", "--workers", workers)
    begun = time.monotonic()
    assert Small(*command[:3], "timed", *command[4:], cwd=tmp_path).finish()[0] == 0
    took = time.monotonic() - begun
    counts: Counter[str] = Counter()
    while counts["killed"] < KILLS:
        run = Small(*command, cwd=tmp_path)
        ended = killed_or_ended(run, rng.uniform(0.3 * took, 1.1 * took), rng, counts, (0,))
        whole(ds)
        if ended:
            compare(ds, logs, tmp_path / "clean")
            rewrite(logs, rng)
            counts["rewritten"] += 1
    assert Small(*command, cwd=tmp_path).finish()[0] == 0
    compare(ds, logs, tmp_path / "clean")
    print(f"ingest with {workers} workers: {dict(counts)}, {took:.1f} s a whole run")  # noqa: T201


def compare(ds, logs, clean):
    """A dataset holds the bytes of one clean ingest, and no file besides."""
    shutil.rmtree(clean, ignore_errors=True)
    ingest(logs, clean, workers=0)
    assert contents(ds) == contents(clean)
    assert debris(ds) == set()


def test_two_writers_and_a_reader(tmp_path):
    rng = random.Random(f"{SEED} writers")
    logs, ds = tmp_path / "logs", tmp_path / "ds"
    write_logs(logs, rng, 600)
    reads: Counter[str] = Counter()
    rounds = max(KILLS // 5, 3)
    for _ in range(rounds):
        rewrite(logs, rng)
        pair = [
            Small("ingest", logs, "--dataset", ds, "--workers", n, cwd=tmp_path) for n in (0, 1)
        ]
        while any(run.process.poll() is None for run in pair):
            if (ds / manifests.FILE).exists():
                opened = open_dataset(ds)
                time.sleep(rng.random() / 20)
                records = opened.records().collect()
                assert records.height == sum(part.rows for part in opened.manifest.records)
                assert opened.rejected().height == opened.sources()["rejected"].sum()
                assert set(records["task_id"]) <= set(opened.tasks())
                reads["good"] += 1
        for run in pair:
            code, _, err = run.finish()
            assert code == 0, err
        compare(ds, logs, tmp_path / "clean")
    print(f"two writers: {rounds} rounds, {reads['good']} reads beside them, none failed")  # noqa: T201


def test_a_full_disk(tmp_path):
    """Files end at a limit, as they do on a disk that is full; the rest is as on a real one."""
    rng = random.Random(f"{SEED} full")
    logs, ds = tmp_path / "logs", tmp_path / "ds"
    write_logs(logs, rng)
    counts: Counter[str] = Counter()
    for limit in rng.sample(range(200, 25_000), KILLS):

        def limited(limit=limit):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run(
            [sys.executable, "-c", SMALL, "ingest", str(logs), "--dataset", "ds", "--workers", "0"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            preexec_fn=limited,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        counts["refused" if done.returncode else "finished"] += 1
        if done.returncode:
            assert done.stderr.count("error:") == 1
            assert "make room" in done.stderr
        if (ds / manifests.FILE).exists():
            whole(ds)
            assert debris(ds) == set()
        if not done.returncode or rng.random() < 0.3:
            shutil.rmtree(ds, ignore_errors=True)
    ingest(logs, ds)
    compare(ds, logs, tmp_path / "clean")
    print(f"a full disk: {dict(counts)}, no traceback, nothing left")  # noqa: T201


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounts a small disk")
def test_a_small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no mounting here")
    try:
        write_logs(tmp_path / "logs", random.Random(SEED), 40_000)
        code, _, err = toolkit("ingest", "logs", "--dataset", "disk/ds", cwd=tmp_path)
        assert (code, "Traceback" in err, "No space left" in err) == (1, False, True)
        if (disk / "ds" / manifests.FILE).exists():
            whole(disk / "ds")
        assert not list(disk.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    print("a disk of 256 KiB: one line, nothing left")  # noqa: T201


def test_flipped_bits(tmp_path):
    rng = random.Random(f"{SEED} bits")
    logs, ds = tmp_path / "logs", tmp_path / "ds"
    write_logs(logs, rng, 300)
    ingest(logs, ds)
    before = contents(ds)
    files = [ds / part.file for part in manifests.load(ds).parts()] + [ds / manifests.FILE]
    counts: Counter[str] = Counter()
    for number in range(4 * KILLS):
        path = files[number % len(files)]
        data = path.read_bytes()
        bit = rng.randrange(8 * len(data))
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert contents(ds) == before
            counts["not opened" if path.parent.name == "duplicates" else "white space"] += 1
        except DatasetError:
            counts["refused"] += 1
        if path.name != manifests.FILE:
            (entry,) = check(ds)["damaged"]
            assert ds / entry["file"] == path
            counts["found by check"] += 1
        code, _, err = (
            (1, "", "") if number % 20 else toolkit("check", "--dataset", ds, cwd=tmp_path)
        )
        assert code == 1 and "Traceback" not in err
        path.write_bytes(data)
    assert contents(ds) == before
    print(f"flipped bits: {dict(counts)}, none gave another value")  # noqa: T201
