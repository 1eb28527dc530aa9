"""Feature columns of the machine, from the target and the hardware parameters."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

from toolkit.records import Task

_GPU_KINDS = ("cuda", "rocm", "opencl", "vulkan", "metal", "webgpu", "nvptx")
_OPTION = re.compile(r"-{1,2}([A-Za-z0-9_-]+)(?:=| (?!-))([^ ]+)")
_SHARED = ("max_shared_memory_per_block", "shared_memory_per_block")

# Values of -mcpu, or their prefixes, by the widest vector register; names are those of LLVM 22.
_AVX512 = (
    "skylake-avx512", "skx", "cascadelake", "cooperlake", "cannonlake", "icelake", "tigerlake",
    "rocketlake", "sapphirerapids", "emeraldrapids", "graniterapids", "diamondrapids", "novalake",
    "znver4", "znver5", "knl", "knm", "x86-64-v4",
)  # fmt: skip
_SSE = (
    "x86-64", "x86-64-v2", "generic", "core2", "penryn", "nehalem", "westmere", "corei7", "atom",
    "bonnell", "silvermont", "goldmont", "goldmont-plus", "tremont", "k8", "opteron", "amdfam10",
    "barcelona", "btver1",
)  # fmt: skip


def is_gpu(task: Task) -> bool:
    """Whether the task's target runs blocks of threads."""
    return task.target_kind in _GPU_KINDS


def target_options(task: Task) -> dict[str, Any]:
    """Return the target's options; recorded hardware parameters override them."""
    options: dict[str, Any] = {}
    if not task.target.lstrip().startswith("{"):
        options = {key.replace("-", "_"): value for key, value in _OPTION.findall(task.target)}
    return {**options, **{k.replace("-", "_"): v for k, v in task.hardware.items()}}


def vector_bytes(task: Task) -> float:
    """Return a vector register's bytes: of a known processor, else recorded, else a guess."""
    options = target_options(task)
    recorded = _option(task, "vector_unit_bytes")
    cpu = str(options.get("mcpu", "")).replace("_", "-")
    attributes = str(options.get("mattr") or "")
    if is_gpu(task):
        return recorded if recorded > 0 else 16.0
    if cpu.startswith(_AVX512) or "avx512" in attributes:
        return 64.0
    if cpu in _SSE or _is_arm(task):
        return 16.0
    if recorded > 0:
        return recorded
    # LLVM's generic x86-64 has 128-bit vectors; named processors usually have wider ones.
    return 32.0 if cpu or attributes else 16.0


def vector_registers(task: Task) -> int:
    """Return the number of a processor's vector registers: 32 of 512 bits and on ARM, else 16."""
    return 32 if vector_bytes(task) == 64.0 or _is_arm(task) else 16


def _is_arm(task: Task) -> bool:
    return any(mark in task.target for mark in ("arm", "aarch64", "neon"))


def cores_of(task: Task) -> float:
    """Cores that a program of the task runs on (``num-cores``, or Ansor's list); NaN: unknown."""
    return _option(task, "num_cores")


def hardware_columns(task: Task) -> dict[str, float]:
    """Feature columns of the machine; NaN where unknown."""
    return {
        "hw_gpu": float(is_gpu(task)),
        "hw_cores": cores_of(task),
        "hw_vector_bytes": vector_bytes(task),
        "hw_shared_bytes": _option(task, *_SHARED),
        "hw_threads_per_block": _option(task, "max_threads_per_block", "max_num_threads"),
        "hw_warp": _option(task, "warp_size", "thread_warp_size"),
    }


# Streaming multiprocessors of boards that logs name, and of an architecture's usual board.
_BOARDS = {
    "v100": 80, "a100": 108, "h100": 132, "h200": 132, "2080ti": 68, "2080": 46, "2070": 36,
    "2060": 30, "3060": 28, "3070": 46, "3080": 68, "3090": 82, "4090": 128, "a4000": 48,
    "a6000": 84, "a10": 72, "l4": 58, "l40": 142, "t4": 40, "k80": 13, "p100": 56, "1050": 5,
    "1060": 10, "1070": 15, "1080ti": 28, "1080": 20, "titanx": 28, "titanv": 80, "jetson": 8,
}  # fmt: skip
_ARCHITECTURES = {
    "37": 13, "52": 24, "60": 56, "61": 20, "62": 2, "70": 80, "72": 8, "75": 68, "80": 108,
    "86": 82, "87": 16, "89": 128, "90": 132,
}  # fmt: skip
_WORD = re.compile(r"[a-z0-9]+")


def multiprocessors(task: Task) -> float:
    """Multiprocessors of the GPU: by the machine's or the target's name, else its architecture.

    80 where it is unknown: a column that only compares candidates of one task needs some value.
    """
    named = f"{task.machine or ''} {target_options(task).get('model', '')}".lower()
    words = _WORD.findall(named.replace("gtx", " ").replace("rtx", " ").replace("tesla", " "))
    joined = [a + b for a, b in itertools.pairwise(words)]
    for word in [*joined, *words]:
        if word in _BOARDS:
            return float(_BOARDS[word])
    arch = str(target_options(task).get("arch", ""))
    return float(_ARCHITECTURES.get("".join(c for c in arch if c.isdigit()), 80))


def shared_limit(task: Task) -> float:
    """Bytes of shared memory that one block may use; 48 KiB where it is unknown."""
    told = _option(task, *_SHARED)
    return told if math.isfinite(told) else 49152.0


def _option(task: Task, *names: str) -> float:
    """Return the first given option of ``names`` if it is a positive number; else NaN."""
    options = target_options(task)
    try:
        number = float(next(options[name] for name in names if name in options))
    except (StopIteration, TypeError, ValueError):
        return math.nan
    return number if 0 < number < 2**31 - 1 else math.nan
