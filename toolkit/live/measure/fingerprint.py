"""Fingerprints of machines: the facts that decide how fast programs run.

Virtual machines of one provider have the same name on several kinds of processor. So a name is not
enough to say whether two measurements can be compared.
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

# Fields of /proc/cpuinfo, on x86 and on Arm.
_OF_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "model name")
_OF_ARM = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")
_FLAGS = ("flags", "Features")
# A 64-bit kernel can run 32-bit programs, and Linux and LLVM use different names.
_FAMILIES = (
    *(("aarch64", "arm"), ("x86", "amd64", "i386", "i486", "i586", "i686")),
    *(("ppc", "powerpc"), ("riscv",), ("mips",), ("loongarch",), ("s390",)),
)
"""Beginnings of architecture names; a processor may run all the architectures of its row."""

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
"""Files of Linux that describe a machine."""


def machine_fingerprint(target: str) -> dict[str, Any]:
    """Return this machine's fingerprint for a target, with its ``id`` (JSON-ready).

    Keys: ``processor``, ``flags`` (their hash), ``processors`` (hardware threads), ``caches``,
    ``clock``, ``compiler``; also ``gpu`` for a GPU. A value that the system does not give is
    ``None``.
    """
    facts = _facts(_files_here(), platform.processor() or platform.machine(), psutil.cpu_count())
    if not runs_on_cpu(target):
        facts["gpu"] = _gpu()
    return {"id": content_id(canonical_json(facts)), **facts}


def fingerprint_of(files: Mapping[str, str], target: str) -> dict[str, Any] | None:
    """Return another machine's fingerprint, made from its ``FILES``; ``None``: no /proc/cpuinfo.

    ``emulator`` is added when its kernel has another architecture than the target.
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
    """Return the name that stands for an architecture and its relatives."""
    return next((names[0] for names in _FAMILIES if architecture.startswith(names)), architecture)


def emulator_warnings(fingerprint: Mapping[str, Any] | None) -> list[str]:
    """Return the warnings about measurements on an emulated device."""
    if not fingerprint or EMULATOR not in fingerprint:
        return []
    return [
        f"the device is emulated ({fingerprint[EMULATOR]}): a program that is fast there may be "
        "slow on a real processor; no model is trained on these records"
    ]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the facts that differ; none for two fingerprints of one machine."""
    if before.get("id") == now.get("id"):
        return []
    names = [name for name in {**before, **now} if name != "id"]
    return [name for name in names if before.get(name) != now.get(name)] or ["id"]


def _facts(files: Mapping[str, str], processor: str, processors: int | None) -> dict[str, Any]:
    """Return the common facts; ``processor`` is the name to use when the files have none."""
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
    """Return the clock settings: governor, and whether boost is allowed."""
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
