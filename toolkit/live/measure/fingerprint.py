"""Tells one machine from another by what decides how fast programs run on it.

Virtual machines of one provider carry the same name over several kinds of processor: a name says
little about whether two measurements may be compared.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from toolkit.live.measure.machine import PROCESSORS, runs_on_cpu
from toolkit.records import canonical_json, content_id

# Of /proc/cpuinfo, on x86 and on Arm.
_OF_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "model name")
_OF_ARM = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")
_FLAGS = ("flags", "Features")


def machine_fingerprint(target: str) -> dict[str, Any]:
    """What decides how fast this machine runs programs for a target, and its ``id`` (JSON-ready).

    Keys: ``processor``, ``flags`` (their hash), ``processors`` (hardware threads), ``caches``,
    ``clock``, ``compiler``; for a GPU ``gpu`` as well. What the system does not tell is ``None``.
    """
    facts = {
        **_processor(),
        "processors": psutil.cpu_count(),
        "caches": _caches(),
        "clock": _clock(),
        "compiler": _compiler(),
        **({} if runs_on_cpu(target) else {"gpu": _gpu()}),
    }
    return {"id": content_id(canonical_json(facts)), **facts}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the facts in which two fingerprints differ; none where they are of one machine."""
    if before.get("id") == now.get("id"):
        return []
    names = [name for name in {**before, **now} if name != "id"]
    return [name for name in names if before.get(name) != now.get(name)] or ["id"]


def _processor() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    told: dict[str, str] = {}
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if not line.strip() and told:
                break
            name, _, value = line.partition(":")
            told[name.strip()] = value.strip()
    names = [told[name] for name in (*_OF_PROCESSOR, *_OF_ARM) if name in told]
    flags = next((told[name] for name in _FLAGS if name in told), None)
    return {
        "processor": " ".join(names) or platform.processor() or platform.machine(),
        "flags": None if flags is None else content_id(" ".join(sorted(flags.split()))),
    }


def _caches() -> list[str] | None:
    """Caches of the first processor, such as ``L1 Data 32K``."""
    found = []
    for index in sorted((PROCESSORS / "cpu0" / "cache").glob("index*")):
        told = [_line(index / name) for name in ("level", "type", "size")]
        if None not in told:
            found.append("L{} {} {}".format(*told))
    return found or None


def _clock() -> str | None:
    """How the clock is held: the governor, and whether it may rise above its nominal speed."""
    told = {
        "governor": _line(PROCESSORS / "cpu0" / "cpufreq" / "scaling_governor"),
        "boost": _line(PROCESSORS / "cpufreq" / "boost"),
        "no_turbo": _line(PROCESSORS / "intel_pstate" / "no_turbo"),
    }
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


def _line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
