"""Loads TVM's tensor intrinsics in 2 seconds instead of 11 (Zen 4; on a slow machine 27).

TVM 0.27 parses some 500 intrinsic functions when ``tvm.s_tir.tensor_intrin`` is imported, which
every ``TuneContext`` does. For each of them it takes ``inspect.stack()``, with source lines, only
to see whether the function stands inside a class (``tirx/script/parser/entry.py``); none of these
does. While the module is imported the stack is therefore empty, which TVM reads as "not in a
class". Measured on one core: 11.1 s before, 2.0 s after.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any

_MODULE = "tvm.s_tir.tensor_intrin"


def load_intrinsics() -> None:
    """Import the intrinsics once, without the stack that TVM does not need."""
    if _MODULE in sys.modules:
        return
    original = inspect.stack

    def empty(context: int = 1) -> list[Any]:
        return []

    inspect.stack = empty
    try:
        importlib.import_module(_MODULE)
    finally:
        inspect.stack = original


def stock_builder(timeout_s: float | None = None) -> Any:
    """TVM's own builder, with workers that load the intrinsics so.

    It starts new workers for every batch. By itself each of them needs 11 to 27 s of its 30 s.
    """
    from tvm.s_tir.meta_schedule.builder import LocalBuilder

    limit = {} if timeout_s is None else {"timeout_sec": timeout_s}
    return LocalBuilder(initializer=load_intrinsics, **limit)
