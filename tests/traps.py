"""Modules in a folder that say so when a process imports them from there."""

from __future__ import annotations

from pathlib import Path

# What a folder that was unpacked may hold: modules that the workers, TVM's own, or what starts
# them, would import.
NAMES = (
    "toolkit/__init__", "numpy", "orjson", "pyarrow", "polars", "tvm", "tvm_ffi", "psutil",
    "multiprocessing/__init__", "runpy", "random", "struct", "selectors", "ctypes", "signal",
    "queue", "threading", "inspect", "json", "cloudpickle", "lightgbm",
)  # fmt: skip


def set_traps(folder: Path) -> None:
    """Put such modules into a folder."""
    said = folder / "said"
    said.mkdir()
    for name in NAMES:
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"import os; open({str(said)!r} + '/{name.split('/')[0]}', 'w')\n")


def sprung(folder: Path) -> list[str]:
    """Names of the modules that were imported from there."""
    return sorted(path.name for path in (folder / "said").iterdir())
