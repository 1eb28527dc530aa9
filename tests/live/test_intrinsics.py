"""TVM's tensor intrinsics: those that a target can use, and the others when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.live

ASK = """
import sys
from tvm.s_tir import TensorIntrin
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.intrinsics import load_intrinsics
from toolkit.live.workloads.named import parse_workload


def known():
    return [TensorIntrin.get(name, True) is not None for name in sys.argv[1:]]


[workload] = parse_workload("matmul:64,64,64")
assert len(DesignSpace(workload.module, '{"kind": "llvm", "num-cores": 2}'))
print(known())
load_intrinsics(%r)
print(known())
"""


@pytest.mark.parametrize("target", ["cuda", '{"kind": "rocm", "mcpu": "gfx90a"}', None])
def test_a_cpu_has_its_own_and_an_accelerator_gets_all(target: str | None) -> None:
    names = ["dot_16x4_vnni", "dot_4x4_i8i8s32_neon", "wmma_load_16x16x16_f16_a_shared"]
    done = subprocess.run(
        [sys.executable, "-c", ASK % target, *names],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[True, True, False]", "[True, True, True]"]
