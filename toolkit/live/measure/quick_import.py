"""TVM for processes that live for a few programs."""

from __future__ import annotations

from typing import Any


def import_tvm() -> Any:
    """Import TVM for a process that lives for one program: in four fifths of the usual time.

    While TVM 0.27 is imported, it lists its 2,300 global functions 51 times, one call a name. Here
    they are listed anew only when there are more of them.
    """
    from tvm_ffi import registry

    usual = registry.list_global_func_names
    known: list[str] = []

    def listed() -> list[str]:
        name_of = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
        count = name_of(-1)
        if count != len(known):
            known[:] = map(name_of, range(count))
        return known

    registry.list_global_func_names = listed
    try:
        import tvm
    finally:
        registry.list_global_func_names = usual
    return tvm
