"""Ingest beside TVM's own readers, on the same files; run by hand on a quiet machine.

    python tests/benchmarks/bench_ingest.py ansor [LOG] --old-python OLD/bin/python
    python tests/benchmarks/bench_ingest.py metaschedule [DATABASE]
    python tests/benchmarks/bench_ingest.py memory [--gigabytes 5]

``ansor`` needs a TVM that still has Ansor, in an environment of its own (Python 3.8)::

    python3.8 -m venv OLD
    OLD/bin/pip install --no-deps hhb-tvm==3.2.3
    OLD/bin/pip install numpy decorator attrs psutil cloudpickle tornado typing_extensions \
        scipy "xgboost<1.8" ml_dtypes

``metaschedule`` uses the installed TVM, which can only open databases of the new graph layout.
Both repeat the given log with distinct measurements until it has ``--records`` records, run reader
and ingest in turns, ``--repeats`` times, and print records a second and their ratio. An ingest is
timed from the log to the committed dataset, by its own report; TVM's readers from the file to the
last record, without the time that it takes to import and warm up TVM.

How long the log is matters to one side only: TVM's readers have the same rate at any length, an
ingest starts its reading processes anew (a quarter of a second, while the reader of the file
waits). A million records is the fair length for archives, which are longer; fewer weigh the start.
Lines made here are of one task and short. A real log has longer lines, which cost an ingest in
proportion and TVM's reader less: give one as LOG to see both rates on it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

RECORD_READER = """
import sys, time
from tvm import auto_scheduler
begun, count = time.perf_counter(), 0
for record in auto_scheduler.RecordReader(sys.argv[1]):
    count += 1
print(count, time.perf_counter() - begun)
"""

JSON_DATABASE = """
import sys, time
from tvm.s_tir import meta_schedule as ms
# TVM loads its intrinsics when it first replays a trace: that is start-up, not reading.
ms.database.JSONDatabase(sys.argv[1], sys.argv[3], allow_missing=False)
begun = time.perf_counter()
database = ms.database.JSONDatabase(sys.argv[1], sys.argv[2], allow_missing=False)
print(len(database), time.perf_counter() - begun)
"""

INGEST = """
import json, sys
from toolkit.datasets import ingest
print(json.dumps(ingest(sys.argv[1], sys.argv[2]).to_json()))
"""


def lines_of(path: Path) -> list[bytes]:
    """Lines of a log, decompressed where need be."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return [line for line in data.splitlines() if line.strip() and not line.startswith(b"#")]


def made_ansor() -> list[bytes]:
    """Ansor lines made here, where no log is given."""
    import loglines

    sizes = (1, 2, 4, 8)
    return [
        loglines.dump(
            loglines.ansor(loglines.ansor_steps(tile=(a, b, c), unroll=u), costs=[1e-3 * a / c])
        )
        for a in sizes
        for b in sizes
        for c in sizes
        for u in (0, 16, 64, 512)
    ]


def repeated(lines: list[bytes]) -> Iterator[bytes]:
    """Ansor lines again and again, each time with another timestamp."""
    turn = 0
    while True:
        for line in lines:
            end = line.rfind(b'], "v"')
            begin = line.rfind(b", ", 0, end) + 2
            yield line[:begin] + b"%d" % (1_600_000_000 + turn) + line[end:]
            turn += 1


def write_ansor(target: Path, lines: list[bytes], enough: Callable[[int, int], bool]) -> int:
    """Write repeated lines until there are enough (records, bytes); return the records."""
    count = size = 0
    with target.open("wb") as stream:
        for line in repeated(lines):
            if enough(count, size):
                return count
            size += stream.write(line + b"\n")
            count += 1
    return count


def run(python: str, program: str, *arguments: str) -> str:
    """Run a program text and return the last line that it prints."""
    done = subprocess.run(
        [python, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def in_turns(
    python: str, program: str, files: list[str], log: Path, folder: Path, repeats: int
) -> tuple[list[float], list[float], float]:
    """Rates of one of TVM's readers and of ingests, and the highest peak of memory in MiB.

    They take turns, so that a host that changes its speed changes it for both.
    """
    theirs, ours, peaks = [], [], []
    for turn in range(repeats):
        count, seconds = run(python, program, *files).split()
        theirs.append(int(count) / float(seconds))
        rate, peak = ingest_rate(log, folder / f"dataset-{turn}")
        ours.append(rate)
        peaks.append(peak)
    return theirs, ours, max(peaks)


def ingest_rate(log: Path, target: Path) -> tuple[float, float]:
    """Rate of an ingest, and its peak of memory in MiB."""
    report = json.loads(run(sys.executable, INGEST, str(log), str(target)))
    assert report["lines"] == report["records"] + report["duplicates"] + report["rejected"]
    shutil.rmtree(target)
    return report["records_per_second"], report["peak_rss_bytes"] / 2**20


def show(name: str, theirs: list[float], ours: list[float], peak: float, bar: float) -> None:
    """Print both best rates, and ratios."""
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    print(f"{name}: {max(theirs):,.0f} records/s")
    print(
        f"toolkit ingest: {max(ours):,.0f} records/s, peak memory {peak:,.0f} MiB (all processes)"
    )
    print(f"ratio: {max(ours) / max(theirs):.1f} best over best (the bar: {bar:.0f})")
    print(f"of the turns: {median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")


def ansor(options: argparse.Namespace, folder: Path) -> None:
    """Beside ``auto_scheduler.RecordReader``."""
    lines = lines_of(Path(options.log)) if options.log else made_ansor()
    log = folder / "ansor.json"
    write_ansor(log, lines, lambda count, _: count >= options.records)
    found = in_turns(options.old_python, RECORD_READER, [str(log)], log, folder, options.repeats)
    show("RecordReader", *found, 10)


def metaschedule(options: argparse.Namespace, folder: Path) -> None:
    """Beside ``JSONDatabase``."""
    given = Path(options.log) if options.log else next((ROOT / "datasets").rglob("*tuning_record*"))
    given = given if given.is_file() else next(given.glob("*tuning_record*"))
    workloads = next(given.parent.glob("*workload*"))
    database = folder / "database"
    database.mkdir()
    (database / "database_workload.json").write_bytes(b"\n".join(lines_of(workloads)) + b"\n")
    records = [json.loads(line) for line in lines_of(given)]
    with (database / "database_tuning_record.json").open("w") as stream:
        for number in range(options.records):
            which, (trace, _, *rest) = records[number % len(records)]
            entry = [which, [trace, [1e-3 + 1e-9 * number], *rest]]
            stream.write(json.dumps(entry, separators=(",", ":")) + "\n")
    files = [str(database / f"database_{name}.json") for name in ("workload", "tuning_record")]
    first = folder / "first.json"
    with Path(files[1]).open("rb") as stream:
        first.write_bytes(b"".join(line for line, _ in zip(stream, range(5), strict=False)))
    given_to = [*files, str(first)]
    found = in_turns(sys.executable, JSON_DATABASE, given_to, database, folder, options.repeats)
    show("JSONDatabase", *found, 30)


def memory(options: argparse.Namespace, folder: Path) -> None:
    """Peak memory on a log of several gigabytes with distinct records."""
    log = folder / "long.json"
    wanted = int(options.gigabytes * 2**30)
    count = write_ansor(log, made_ansor(), lambda _, size: size >= wanted)
    rate, peak = ingest_rate(log, folder / "dataset")
    print(f"{log.stat().st_size / 2**30:.2f} GiB, {count:,} distinct records")
    print(f"{rate:,.0f} records/s, peak memory {peak:,.0f} MiB (the bar: 1,024)")


def main() -> None:
    """Parse the command line and run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["ansor", "metaschedule", "memory"])
    parser.add_argument("log", nargs="?", help="log, or folder of a database (default: made here)")
    parser.add_argument("--old-python", default="python3.8", help="Python that has Ansor's TVM")
    parser.add_argument(
        "--records", type=int, help="(default: a million for ansor, 200,000 for metaschedule)"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--folder", help="where to write (default: the system's temporary folder)")
    options = parser.parse_args()
    # Where a container's image sets it, each process of an ingest compiles the toolkit anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options.records = options.records or (1_000_000 if options.what == "ansor" else 200_000)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        {"ansor": ansor, "metaschedule": metaschedule, "memory": memory}[options.what](
            options, Path(name)
        )


if __name__ == "__main__":
    main()
