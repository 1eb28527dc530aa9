"""Tells one machine from another by what decides how fast programs run on it.

Virtual machines of one provider carry the same name over several kinds of processor: a name says
little about whether two measurements may be compared.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from toolkit.live.measure.machine import runs_on_cpu, tvm_target
from toolkit.records import EMULATOR, canonical_json, content_id

# Of /proc/cpuinfo, on x86 and on Arm.
_OF_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "model name")
_OF_ARM = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")
_FLAGS = ("flags", "Features")
# A kernel of 64 bits runs programs of 32, and Linux and LLVM have two names for one.
_FAMILIES = (
    *(("aarch64", "arm"), ("x86", "amd64", "i386", "i486", "i586", "i686")),
    *(("ppc", "powerpc"), ("riscv",), ("mips",), ("loongarch",), ("s390",)),
)
"""What names of architectures begin with, whose programs one processor may run."""

_CPU = "/sys/devices/system/cpu"
_CACHES = [f"{_CPU}/cpu0/cache/index{number}" for number in range(10)]
_CLOCK = {
    "governor": f"{_CPU}/cpu0/cpufreq/scaling_governor",
    "boost": f"{_CPU}/cpufreq/boost",
    "no_turbo": f"{_CPU}/intel_pstate/no_turbo",
}
_KERNEL = "/proc/sys/kernel/arch"
_INFO = "/proc/cpuinfo"

FILES = (
    *(_INFO, _KERNEL, *_CLOCK.values()),
    *(f"{index}/{name}" for index in _CACHES for name in ("level", "type", "size")),
)
"""Files of Linux that say what a machine is."""


def machine_fingerprint(target: str) -> dict[str, Any]:
    """What decides how fast this machine runs programs for a target, and its ``id`` (JSON-ready).

    Keys: ``processor``, ``flags`` (their hash), ``processors`` (hardware threads), ``caches``,
    ``clock``, ``compiler``; for a GPU ``gpu`` as well. What the system does not tell is ``None``.
    """
    facts = _facts(_files_here(), platform.processor() or platform.machine(), psutil.cpu_count())
    if not runs_on_cpu(target):
        facts["gpu"] = _gpu()
    return {"id": content_id(canonical_json(facts)), **facts}


def fingerprint_of(files: Mapping[str, str], target: str) -> dict[str, Any] | None:
    """The fingerprint of another machine by its ``FILES``; ``None`` where it has none of them.

    ``emulator`` is added where its kernel is of another architecture than the target.
    """
    if _INFO not in files:
        return None
    count = sum(line.startswith("processor") for line in files[_INFO].splitlines())
    facts = _facts(files, "", count or None)
    wanted = str(tvm_target(target).attrs.get("mtriple", "")).partition("-")[0]
    kernel = files.get(_KERNEL, "").strip() or ("x86_64" if "vendor_id" in files[_INFO] else "")
    if wanted and kernel and _family(kernel) != _family(wanted):
        facts[EMULATOR] = f"{wanted} on {kernel}"
    return {"id": content_id(canonical_json(facts)), **facts}


def _family(architecture: str) -> str:
    """The name that stands for an architecture and its relatives."""
    return next((names[0] for names in _FAMILIES if architecture.startswith(names)), architecture)


def emulator_warnings(fingerprint: Mapping[str, Any] | None) -> list[str]:
    """What to tell of an emulator's readings."""
    if not fingerprint or EMULATOR not in fingerprint:
        return []
    return [
        f"the device is emulated ({fingerprint[EMULATOR]}): what is fast there need not be fast on "
        "a processor; no model is trained on these records"
    ]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the facts in which two fingerprints differ; none where they are of one machine."""
    if before.get("id") == now.get("id"):
        return []
    names = [name for name in {**before, **now} if name != "id"]
    return [name for name in names if before.get(name) != now.get(name)] or ["id"]


def _facts(files: Mapping[str, str], processor: str, processors: int | None) -> dict[str, Any]:
    """What all fingerprints hold; the processor's name where the files do not tell it."""
    return {
        **_processor(files.get(_INFO, ""), processor),
        "processors": processors,
        "caches": _caches(files),
        "clock": _clock(files),
        "compiler": _compiler(),
    }


def _files_here() -> dict[str, str]:
    found = {}
    for name in FILES:
        with contextlib.suppress(OSError):
            found[name] = Path(name).read_text(encoding="utf-8", errors="replace")
    return found


def _processor(info: str, otherwise: str) -> dict[str, Any]:
    told: dict[str, str] = {}
    for line in info.splitlines():
        if not line.strip() and told:
            break
        name, _, value = line.partition(":")
        told[name.strip()] = value.strip()
    names = [told[name] for name in (*_OF_PROCESSOR, *_OF_ARM) if name in told]
    flags = next((told[name] for name in _FLAGS if name in told), None)
    return {
        "processor": " ".join(names) or otherwise,
        "flags": None if flags is None else content_id(" ".join(sorted(flags.split()))),
    }


def _caches(files: Mapping[str, str]) -> list[str] | None:
    """Caches of the first processor, such as ``L1 Data 32K``."""
    found = []
    for index in _CACHES:
        told = [files.get(f"{index}/{name}", "").strip() for name in ("level", "type", "size")]
        if all(told):
            found.append("L{} {} {}".format(*told))
    return found or None


def _clock(files: Mapping[str, str]) -> str | None:
    """How the clock is held: the governor, and whether it may rise above its nominal speed."""
    told = {name: files.get(path, "").strip() for name, path in _CLOCK.items()}
    return ", ".join(f"{name} {value}" for name, value in told.items() if value) or None


def _compiler() -> str:
    import tvm
    from tvm.target import codegen

    return f"TVM {tvm.__version__}, LLVM {codegen.llvm_version_major()}"


def _gpu() -> str | None:
    import tvm

    device = tvm.cuda(0)
    if not device.exist:
        return None
    clock_mhz = device.max_clock_rate // 1000
    return f"{device.device_name}, {device.multi_processor_count} SM, {clock_mhz} MHz"
