"""The race inside Ansor: steps that mutate, sketches that are told apart, and one real race."""

from __future__ import annotations

import gzip
import json
import math
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.live.older_tvm import needs_ansor
from toolkit.cli.main import app
from toolkit.errors import LiveError
from toolkit.live.race import ansor

HERE = Path(ansor.__file__).parent
STEPS = runpy.run_path(str(HERE / "ansor_steps.py"))
LEG = runpy.run_path(str(HERE / "ansor_leg.py"))
DIRECTIONS = runpy.run_path(str(HERE / "ansor_directions.py"))
LOGS = Path(__file__).parents[2] / "datasets" / "ansor-epyc-znver5-1core"
RECORDS = [
    json.loads(line)
    for path in sorted(LOGS.glob("*.json.gz"))
    for line in gzip.decompress(path.read_bytes()).splitlines()[:40]
]
BY_TASK: dict[str, list[Any]] = {}
for _record in RECORDS:
    BY_TASK.setdefault(_record["i"][0][0], []).append(_record)


def program(record: Any) -> Any:
    return STEPS["AnsorProgram"](None, record)


def changed(record: Any, rule: str, seed: int) -> Any | None:
    """A copy of a record with a rule's change; ``None`` where the rule finds nothing."""
    copy = json.loads(json.dumps(record))
    done = STEPS["CHANGES"][rule](copy["i"][1][1], np.random.default_rng(seed))
    return copy if done else None


@given(st.sampled_from(RECORDS), st.sampled_from(STEPS["RULES"]), st.integers(0, 999))
def test_a_rule_changes_a_recorded_program_and_never_its_sketch(
    record: Any, rule: str, seed: int
) -> None:
    other = changed(record, rule, seed)
    if other is None:
        return
    before, after = program(record), program(other)
    assert after.key != before.key
    assert after.sketch == before.sketch
    assert [step[0] for step in after.steps] == [step[0] for step in before.steps]


@given(st.sampled_from(RECORDS), st.integers(0, 999))
def test_a_tile_keeps_its_extent_and_its_innermost_limit(record: Any, seed: int) -> None:
    other = changed(record, "tile", seed)
    assert other is not None
    pairs = zip(program(record).steps, program(other).steps, strict=True)
    ((old, new),) = [(a, b) for a, b in pairs if a != b]
    assert old[0] == "SP" and old[:4] == new[:4]
    assert old[3] % math.prod(new[4]) == 0
    assert new[4][-1] <= max(old[4][-1], STEPS["MOST_INNERMOST"])


@given(st.sampled_from(RECORDS), st.integers(0, 999))
def test_fusing_another_number_of_loops_moves_the_loops_behind(record: Any, seed: int) -> None:
    other = changed(record, "parallel", seed)
    if other is None:  # one loop runs in parallel, and none is fused
        assert all(step[0] != "FU" for step in program(record).steps)
        return
    pairs = list(zip(program(record).steps, program(other).steps, strict=True))
    ((old, new),) = [(a, b) for a, b in pairs if a != b and a[0] == "FU"]
    by = len(new[2]) - len(old[2])
    assert abs(by) == 1
    place = pairs.index((old, new))
    assert all(a == b for a, b in pairs[:place])
    for a, b in pairs[place + 1 :]:
        on_it = a[0] in ("AN", "PR") and a[1] == old[1] and a[2] > 0
        assert b[2] == a[2] - by if on_it else a == b or a[0] == "CA"


def test_sketches_of_a_task_are_few_and_not_one() -> None:
    for records in BY_TASK.values():
        assert 2 <= len({program(record).sketch for record in records}) <= 4


def test_sketch_means_commit_after_exploring_and_go_on_learning() -> None:
    records = next(iter(BY_TASK.values()))
    programs = [program(record) for record in records]
    first = programs[0].sketch
    means, rng = LEG["SketchMeans"](), np.random.default_rng(0)
    explored = LEG["WARM_UP"] + LEG["EXPLORE"]
    values = [1.0 if p.sketch == first else 0.2 for p in programs]
    assert means.kept(programs, explored, rng) == programs, "nothing is known of a sketch yet"
    means.scored(programs, values)
    assert means.kept(programs, explored - 1, rng) == programs
    many = programs * 20
    kept = means.kept(many, explored, rng)
    others = [p for p in many if p.sketch != first]
    strays = [p for p in kept if p.sketch != first]
    assert len(kept) - len(strays) == len(many) - len(others)
    assert 0.02 < len(strays) / len(others) < 0.2
    # Last round and history weigh half and half: a wrong first impression is mended.
    means.scored(programs, [0.1 if p.sketch == first else 0.9 for p in programs])
    assert means.means[first] == pytest.approx(0.55)
    means.scored(programs, [0.1 if p.sketch == first else 0.9 for p in programs])
    kept = means.kept(many, explored + 2, rng)
    best = max(means.means, key=lambda sketch: means.means[sketch])
    assert best != first
    assert sum(p.sketch == best for p in kept) == sum(p.sketch == best for p in many)


def test_the_label_is_the_highest_gain_and_weights_decide_between_equal_ones() -> None:
    label, rules = DIRECTIONS["label"], STEPS["RULES"]
    assert rules[label(1.0, [0.9, 0.5, None, 0.8])] == "unroll"
    assert rules[label(1.0, [0.9, 0.899, None, 0.9])] == "tile"
    assert rules[label(1.0, [None, None, None, 3.0])] == "parallel"


def test_names_of_workloads_become_keys() -> None:
    key, shapes = LEG["workload_key"], {"GMM": (None, [(1, 128, 64, 32)]), "P": (None, [((2, 3),)])}
    assert json.loads(key("GMM:0", shapes)) == ["GMM", 1, 128, 64, 32]
    assert json.loads(key("P:0", shapes)) == ["P", [2, 3]]
    assert json.loads(key("own(16, [1, 2])", shapes)) == ["own", 16, [1, 2]]
    for wrong, word in (("GMM", "neither"), ("GMM:1", "1 shapes"), ("f(x)", "numbers")):
        with pytest.raises(ValueError, match=word):
            key(wrong, shapes)


def test_the_warning_knows_when_sketches_are_chosen() -> None:
    assert LEG["BATCH"] * (LEG["WARM_UP"] + LEG["EXPLORE"]) == ansor.UNCOMMITTED


def test_mistakes_end_with_one_line(tmp_path: Path) -> None:
    python = tmp_path / "python"
    for options, word in (
        (["--strategy", "etc-sketsh"], "etc-sketch"),
        (["--ablation"], "--ablation"),
        (["--builders", "2", "--machine", "m"], "leave out --builders and --machine"),
        ([], "no such file"),
    ):
        command = ["race", "--tvm-python", str(python), "--out", str(tmp_path / "r"), *options]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 1 and word in " ".join(done.stderr.split())


def test_a_workload_that_is_named_twice_is_raced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[str] = []

    def begun(tasks: Any, *_: Any, **__: Any) -> None:
        raced.extend(task.name for task in tasks)
        raise LiveError("it has begun")

    monkeypatch.setattr(ansor, "run_race", begun)
    # What no arm is predicted for needs no classifier, which the older TVM would train.
    command = ["race", "--tvm-python", sys.executable, "--strategy", "evolutionary"]
    for name in ("GMM:0", "C1D:1", "GMM:0"):
        command += ["--workload", name]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "r")])
    assert done.exit_code == 1 and "it has begun" in " ".join(done.stderr.split()), done.output
    assert raced == ["GMM:0", "C1D:1"]


@needs_ansor
def test_ansor_races_against_its_changed_self(tmp_path: Path) -> None:
    python = os.environ["TOOLKIT_ANSOR_PYTHON"]
    command = ["race", "--tvm-python", python, "--workload", "GMM(1,16,16,16)", "--threads", "1"]
    command += ["--trials", "6", "--seeds", "1", "--min-repeat-ms", "20", "--blocks", "2"]
    command += ["--stock-build-timeout", "240", "--out", str(tmp_path / "r"), "--json"]
    same = CliRunner().invoke(app, [*command, "--learn", "GMM(1,16,16,16)"])
    assert same.exit_code == 1 and "learn from a raced workload" in " ".join(same.stderr.split())
    command += ["--learn", "GMM(1,32,32,32)"]
    # A mistake before the first leg binds nobody to its settings.
    done = CliRunner().invoke(app, command)
    assert done.exit_code in (0, 4), done.output
    refused = CliRunner().invoke(app, [*command, "--learn", "GMM(1,8,8,8)"])
    assert refused.exit_code == 1 and "learn" in refused.stderr, "another race's folder"
    result = orjson.loads(done.stdout)
    assert [row["arm"] for row in result["rows"]] == list(ansor.ANSOR_ARMS)
    assert {row["trials"] for row in result["rows"]} == {6}
    (learned,) = result["models"]
    assert "programs of GMM(1,32,32,32)" in learned
    (confirmed,) = result["confirmed"]
    assert confirmed["undecided"] or set(confirmed["finals"]) == set(ansor.ANSOR_ARMS)
    assert any("etc-sketch changes nothing" in warning for warning in result["warnings"])
    # The classifier has learned from it by now, whatever is asked for later.
    added = [*command, "--workload", "GMM(1,32,32,32)"]
    later = CliRunner().invoke(app, added)
    assert later.exit_code == 1 and "from a raced workload" in " ".join(later.stderr.split())
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("leg.json")}
    assert CliRunner().invoke(app, command).exit_code in (0, 4)
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("leg.json")}
