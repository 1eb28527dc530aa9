"""Compiles a network's functions on all cores, each function once.

TVM gives all functions of a module to LLVM as one piece, on one core: two minutes for 200 functions
on a Zen 3. Here each function is its own object file. When a network is built again with other
programs for some of its functions, the object files of the other functions are reused.
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm_ffi import structural_equal

from toolkit.live.measure.machine import physical_cores, tvm_target


class ObjectFiles:
    """Object files of functions for one target; a context manager."""

    def __init__(self, target: str) -> None:
        self._target = tvm_target(target)
        self._folder = TemporaryDirectory()
        # TVM releases Python's lock while it compiles.
        self._pool = ThreadPoolExecutor(physical_cores())
        self._made: dict[str, list[tuple[Any, Future[str]]]] = {}
        self._count = itertools.count()

    def __enter__(self) -> ObjectFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def link(self, lowered: tvm.IRModule, path: Path) -> None:
        """Write the library of a lowered network: every operator is a function.

        It works as ``relax.build`` of TVM 0.27, and raises TVM's errors.
        """
        attributes = dict(lowered.attrs or {})
        builder = relax.ExecBuilder()
        left = vm_build._filter_tir(vm_build._vmcodegen(builder, lowered))
        asked = [] if left is None else [self._object(*one) for one in left.functions.items()]
        files = [each.result() for each in asked]
        executable = vm_build._vmlink(
            builder,
            self._target,
            ext_libs=attributes.get("external_mods", []),
            params=dict(attributes.get("const_name_to_constant", {})),
        )
        executable.export_library(str(path), addons=files)

    def _object(self, name: Any, function: Any) -> Future[str]:
        made = self._made.setdefault(str(name.name_hint), [])
        for known, compiled in made:
            if structural_equal(known, function):
                return compiled
        path = Path(self._folder.name) / f"{next(self._count)}.o"
        compiled = self._pool.submit(self._compile, name, function, str(path))
        made.append((function, compiled))
        return compiled

    def _compile(self, name: Any, function: Any, path: str) -> str:
        with self._target:
            compiled = tvm.tirx.build(tvm.IRModule({name: function}), target=self._target)
        compiled.write_to_file(path)
        return path
