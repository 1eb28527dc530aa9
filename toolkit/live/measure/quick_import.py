"""A faster import of TVM, for processes that run only a few programs."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

CPU_KINDS = ("llvm", "c")
"""Kinds of targets that TVM's compiler library supports without another backend."""

_BACKENDS = "TVM_DEVICE_BACKEND_AUTOLOAD"
_DISCO = "tvm.runtime.disco"


def import_tvm(kind: str) -> Any:
    """Import TVM in half the usual time, for a process with programs of one kind of target.

    The usual import of TVM 0.27 wastes time in these ways, which are left out here. It lists its
    2,300 global functions 51 times, with one call for each name. Python's garbage collector checks
    objects that stay. NumPy's threads spin for 0.1 s. For a CPU target, it loads the backends of
    CUDA and eight others. Some of that raises errors inside the library, and the first error reads
    the symbols of the whole compiler for its backtrace.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with _functions_listed_once(), _no_collection(), _without_disco():
        if kind not in CPU_KINDS or _BACKENDS in os.environ:
            import tvm
        else:
            os.environ[_BACKENDS] = "0"
            try:
                import tvm
            finally:
                del os.environ[_BACKENDS]
            _load_beside_backends()
    return tvm


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute of a module another value, and its own value again at the end."""
    usual = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, usual)


def _functions_listed_once() -> contextlib.AbstractContextManager[None]:
    """List TVM's global functions again only when their number has changed."""
    from tvm_ffi import registry

    known: list[str] = []

    def listed() -> list[str]:
        name_of = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
        count = name_of(-1)
        if count != len(known):
            known[:] = map(name_of, range(count))
        return known

    return replaced(registry, "list_global_func_names", listed)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Stop garbage collection during the import, and freeze what was imported: it stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@contextlib.contextmanager
def _without_disco() -> Iterator[None]:
    """Skip TVM's sessions over several devices: TVM 0.27 tries to import them and fails."""
    is_first = sys.modules.setdefault(_DISCO, None) is None  # type: ignore[arg-type]
    try:
        yield
    finally:
        if is_first:
            del sys.modules[_DISCO]


def _load_beside_backends() -> None:
    """Load what TVM loads together with its backends: the rest of its runtime, and plugins."""
    from tvm.backend import _autoload_backends as loading

    loading._AUTO_LOAD_DONE = False
    with replaced(loading, "_BUILTIN_BACKENDS", ()):
        loading._autoload_backends()
