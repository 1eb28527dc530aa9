"""The fuzzing harness's invariants, on few inputs; and what fuzzing has found so far."""

from __future__ import annotations

import base64
import json
import random

import invariants
import loglines
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkit.logs.formats.metaschedule.workload import read_workload
from toolkit.logs.rows.base import BadLine


@pytest.mark.parametrize("name", invariants.FORMATS)
def test_good_inputs(name):
    for data in invariants.seeds(name):
        invariants.check(name, data)


@pytest.mark.parametrize("name", invariants.FORMATS)
@settings(max_examples=60)
@given(st.integers(0, 2**64 - 1), st.integers(1, 4))
def test_inputs_that_are_nearly_good(name, seed, changes):
    rng = random.Random(seed)
    data = rng.choice(invariants.seeds(name))
    for _ in range(changes):
        data = invariants.mutate(data, rng)
    invariants.check(name, data)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**64 - 1), st.sampled_from(invariants.FORMATS))
def test_files_that_are_nearly_good(seed, name):
    rng = random.Random(seed)
    data = invariants.mutate(rng.choice(invariants.seeds(name)), rng)
    invariants.check_ingest(data.replace(invariants.APART, b"\n"))


def database(*records: bytes) -> bytes:
    workload = loglines.dump(loglines.workload("1", 64))
    return workload + invariants.APART + b"".join(record + b"\n" for record in records)


def compact(entry) -> bytes:
    return loglines.dump(entry).replace(b", ", b",").replace(b": ", b":")


def test_times_beyond_json_s_integers_are_exported():
    for timestamp in (1e300, 2.0**53, -(2.0**70)):
        invariants.check("autotvm", loglines.dump(loglines.autotvm(timestamp=timestamp)))
        invariants.check("ansor", loglines.dump(loglines.ansor(timestamp=timestamp)))


def test_minus_zero_comes_back_as_the_same_record():
    lines = [loglines.autotvm(elapsed=-0.0, timestamp=1), loglines.autotvm_old()]
    lines[1]["r"][2] = -0.0
    for line in lines:
        invariants.check("autotvm", loglines.dump(line))
    invariants.check("ansor", loglines.dump(loglines.ansor(elapsed=-0.0)) + b"\n")


def test_a_workload_that_is_no_ascii_is_rejected():
    _, text = loglines.workload()
    for odd in (text + "é", "é", base64.b64encode(b"\xff" * 20).decode()):
        with pytest.raises(BadLine, match="graph"):
            read_workload(loglines.dump(["1", odd]))


def test_instructions_behind_the_postprocessors_are_checked_whatever_was_read_before():
    good = compact(loglines.metaschedule())
    odd = good.replace(b'["EnterPostproc",[],[],[]]', b'["EnterPostproc",[],[],2]')
    assert odd != good
    invariants.check("metaschedule", database(good, odd, good))
    invariants.check("metaschedule", database(odd, good) + odd)


def test_a_trace_that_goes_on_where_another_enters_its_postprocessors():
    good = compact(loglines.metaschedule())
    longer = good.replace(b'["EnterPostproc",[],[],[]]', b'["Unroll",["l8"],[],[]]')
    assert longer != good
    invariants.check("metaschedule", database(good, longer, good))


@pytest.mark.parametrize("new", [False, True])
def test_a_workload_whose_statements_run_in_circles_is_rejected(new):
    digest, text = loglines.workload(new=new)
    graph = json.loads(base64.b64decode(text)[8:])
    loops = [
        node for node in graph["nodes"] if "For" in str(node.get("type_key") or node.get("type"))
    ]
    loops[0]["data" if new else "attrs"]["body"] = graph["nodes"].index(loops[0])
    told = json.dumps(graph).encode()
    line = [digest, base64.b64encode(len(told).to_bytes(8, "little") + told).decode()]
    with pytest.raises(BadLine, match="layout"):
        read_workload(loglines.dump(line))


def test_the_same_bytes_but_for_a_digit_that_stands_elsewhere():
    line = loglines.dump(loglines.ansor())
    odd = line.replace(b"1, 4, 2, 5", b"1, , 2, 5").replace(b'["FU"', b'0["FU"')
    assert len(odd) == len(line)
    other = loglines.dump(loglines.ansor(key='["bare"]'))
    invariants.check("ansor", b"\n".join([other, odd, b""]))
    invariants.check("ansor", b"\n".join([line, odd, line, b""]))
