"""Facts of this machine: its cores, the target to compile for, and whether it is quiet."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import orjson
import psutil

from toolkit.errors import LiveError
from toolkit.live.measure.quick_import import CPU_KINDS

PROCESSORS = Path("/sys/devices/system/cpu")


def processors_by_core() -> list[list[int]]:
    """Return the processors that this process may use, by core (hyper-threads of one together)."""
    if not hasattr(os, "sched_getaffinity"):
        return [[number] for number in range(psutil.cpu_count(logical=False) or 1)]
    cores: dict[str, list[int]] = {}
    for number in sorted(os.sched_getaffinity(0)):
        try:
            siblings = PROCESSORS / f"cpu{number}" / "topology" / "thread_siblings_list"
            core = siblings.read_text(encoding="ascii").strip()
        except OSError:
            core = str(number)
        cores.setdefault(core, []).append(number)
    return list(cores.values())


def physical_cores() -> int:
    """Return the number of cores that this process may use; hyper-threads do not count."""
    return len(processors_by_core())


def places_for(threads: int) -> tuple[int, ...]:
    """Return one processor for each thread, on different cores if possible; empty: too few.

    A single thread is left to the system.
    """
    cores = processors_by_core()
    layers = range(max(len(core) for core in cores))
    in_turn = [core[layer] for layer in layers for core in cores if layer < len(core)]
    return tuple(in_turn[:threads]) if 1 < threads <= len(in_turn) else ()


def default_target(threads: int) -> str:
    """Return an LLVM target for exactly this processor (JSON): far faster than plain ``llvm``."""
    from tvm.target import codegen

    return orjson.dumps(
        {"kind": "llvm", "mcpu": str(codegen.llvm_get_system_cpu()), "num-cores": threads},
        option=orjson.OPT_SORT_KEYS,
    ).decode()


def read_target(text: str) -> Any:
    """Return a target's text as TVM takes it: an object read from JSON, or a tag."""
    return orjson.loads(text) if text.lstrip().startswith("{") else text


def tvm_target(text: str) -> Any:
    """Return TVM's target for a text, which is JSON or a tag."""
    import tvm

    return tvm.target.Target(read_target(text))


def tvm_says(error: Exception) -> str:
    """Return the last line of an error of TVM; the lines before it may be a call stack."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def parse_target(text: str) -> str:
    """Check a target with TVM and return its JSON; raise ``LiveError`` when TVM refuses it.

    A plain ``cuda`` becomes the first GPU of this machine, with its architecture and its limits:
    the design spaces depend on them.
    """
    import tvm

    bare_cuda = text.strip() == "cuda"
    if bare_cuda and not tvm.cuda(0).exist:
        raise LiveError(
            "the target 'cuda' means a GPU of this machine, and CUDA sees none",
            cure="for a GPU elsewhere (--device), describe it: "
            '--target \'{"kind": "cuda", "arch": "sm_86", "max_threads_per_block": 1024, '
            '"max_shared_memory_per_block": 49152}\'',
        )
    try:
        if bare_cuda:
            return str(tvm.target.Target.from_device("cuda"))
        return str(tvm_target(text))
    except Exception as error:
        raise LiveError(
            f"TVM does not accept the target {text!r}: {tvm_says(error)[:200]}",
            cure='example: --target \'{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}\'',
        ) from None


def runs_on_cpu(target: str) -> bool:
    """Return whether programs for a target run on a CPU (and not on a GPU)."""
    given = read_target(target)
    return (given["kind"] if isinstance(given, dict) else given.split()[0]) in CPU_KINDS


def target_threads(target: str) -> int:
    """Return the number of threads of a program for a CPU target (its ``num-cores``)."""
    given = read_target(target)
    cores = int(given.get("num-cores") or 0) if isinstance(given, dict) else 0
    return cores if cores > 0 else physical_cores()


def cpu_model() -> str:
    """Return the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.is_file() else ""
    found = re.search(r"^model name[^:\n]*:(.*)", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def describe_machine() -> dict[str, Any]:
    """Return facts to store with every measurement (JSON-ready)."""
    import tvm

    return {
        "cpu": cpu_model(),
        "cores": physical_cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tvm": tvm.__version__,
    }


def noise_warnings(threads: int) -> list[str]:
    """Return reasons why measurements on this machine may be noisy now, each with a cure."""
    warnings = []
    busy = psutil.cpu_percent(interval=0.3, percpu=True)
    free = sum(share < 30 for share in busy)
    if free < threads:
        warnings.append(
            f"{len(busy) - free} of {len(busy)} cores are busy, the measurements need {threads}: "
            "stop other programs"
        )
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.is_file() and governor.read_text(encoding="ascii").strip() != "performance":
        warnings.append(
            "the clock frequency is not fixed (the cpufreq governor is not 'performance'): "
            "run cpupower frequency-set -g performance"
        )
    temperatures: dict[str, Any] = getattr(psutil, "sensors_temperatures", dict)()
    for name, sensors in temperatures.items():
        for sensor in sensors:
            if sensor.high and sensor.current >= sensor.high:
                warnings.append(f"{name} is at its limit, {sensor.current:.0f} C: let it cool")
    return warnings
