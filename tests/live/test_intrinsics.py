"""TVM's tensor intrinsics: those that a target can use, and the others when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.live

ASK = """
import os, sys
from tvm.s_tir import TensorIntrin
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.intrinsics import load_intrinsics
from toolkit.live.workloads.named import parse_workload


def known():
    return [TensorIntrin.get(name, True) is not None for name in sys.argv[1:]]


[workload] = parse_workload("matmul:64,64,64")
assert DesignSpace(workload.module, '{"kind": "llvm", "num-cores": 2}').bases
print(known(), flush=True)
for target in %r:
    # What was loaded stays: each target has a process as it was before any of them asked.
    if os.fork() == 0:
        load_intrinsics(target)
        print(known(), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""

TARGETS = ["cuda", '{"kind": "rocm", "mcpu": "gfx90a"}', None]


def test_a_cpu_has_its_own_and_an_accelerator_gets_all() -> None:
    names = ["dot_16x4_vnni", "dot_4x4_i8i8s32_neon", "wmma_load_16x16x16_f16_a_shared"]
    done = subprocess.run(
        [sys.executable, "-c", ASK % TARGETS, *names],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[True, True, False]"] + ["[True, True, True]"] * 3
