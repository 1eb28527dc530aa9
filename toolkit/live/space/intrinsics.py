"""Load TVM's tensor intrinsics in half a second instead of 11 (Zen 4; on a slow machine 27).

TVM 0.27 parses some 250 intrinsic functions when ``tvm.s_tir.tensor_intrin`` is imported, which
every ``TuneContext`` does. For each function it calls ``inspect.stack()``, with source lines, only
to see whether the function is inside a class (``tirx/script/parser/entry.py``). None of them is.
So the stack is made empty during the import, which TVM reads as "not in a class": 2.0 s on one
core. Nine tenths of that are functions for accelerators, which programs for a CPU cannot use. They
are left out until a target needs them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType

from toolkit.live.measure.machine import runs_on_cpu
from toolkit.live.measure.quick_import import replaced

PACKAGE = "tvm.s_tir.tensor_intrin"
ACCELERATORS = ("cuda", "rocm", "hexagon")
"""Modules of the package that are never used for a CPU."""


def load_intrinsics(target: str | None = None) -> None:
    """Register the intrinsics that a target (JSON or a tag) can use, once; ``None``: all of them.

    ``inspect.stack()`` is empty meanwhile: TVM does not need it.
    """
    no_stack = replaced(inspect, "stack", lambda context=1: [])
    left_out = [f"{PACKAGE}.{name}" for name in ACCELERATORS]
    if target is None or not runs_on_cpu(target):
        with no_stack:
            for name in (PACKAGE, *left_out):
                importlib.import_module(name)
        return
    if PACKAGE in sys.modules:
        return
    stand_ins = {name: ModuleType(name) for name in left_out if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        with no_stack:
            importlib.import_module(PACKAGE)
    finally:
        for name in stand_ins:
            del sys.modules[name]
