"""Processes start with what they need: TVM's functions are all there, and nothing heavy besides."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    *("polars", "pyarrow", "pydantic", "sklearn", "lightgbm", "xgboost"),
    *("scipy.stats", "scipy.interpolate", "scipy.ndimage"),
)
"""Each of these takes 0.1 to 1.5 seconds to import."""


def ask(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


FUNCTIONS = (
    "print(*sorted(f'{n}.{k}' for n, m in list(sys.modules.items()) "
    "if n.startswith('tvm') and '_ffi' in n for k in dir(m) if not k.startswith('__')))"
)


def quick(kind: str, then: str = FUNCTIONS) -> list[str]:
    begin = "import sys; from toolkit.live.measure.quick_import import import_tvm; "
    return ask(f"{begin}import_tvm({kind!r}); {then}").split()


def test_the_quick_import_of_tvm_finds_the_same_functions() -> None:
    """``tvm._ffi_api`` and its like are filled with what is registered when they are imported."""
    usual = ask(f"import sys, tvm; {FUNCTIONS}").split()
    found = {kind: quick(kind) for kind in ("llvm", "cuda")}
    beside = ("tvm.backend.", "tvm.tirx.backend.", "tvm.runtime.disco.")
    for kind, left_out in (("llvm", beside), ("cuda", beside[2:])):
        assert set(found[kind]) <= set(usual)
        missing = set(usual) - set(found[kind])
        assert all(name.startswith(left_out) for name in missing), (kind, sorted(missing)[:20])
    assert sum(name.startswith("tvm.relax.op._ffi_api.") for name in usual) > 100


def test_the_quick_import_leaves_tvm_as_it_was() -> None:
    changed = (
        "import gc, os, tvm.backend._autoload_backends as b, tvm_ffi.registry as r; "
        "print(gc.isenabled(), 'TVM_DEVICE_BACKEND_AUTOLOAD' in os.environ, "
        "'tvm.runtime.disco' in sys.modules, len(b._BUILTIN_BACKENDS) > 5, "
        "r.list_global_func_names.__module__, 'tvm_runtime_extra' in tvm.base._LOADED_LIBS)"
    )
    for kind in ("llvm", "cuda"):
        told = quick(kind, f"import tvm; {changed}")
        assert told == ["True", "False", "False", "True", "tvm_ffi.registry", "True"]


def test_a_device_s_backend_is_loaded_for_it() -> None:
    told = "print('tvm.backend.cuda.target_tags' in sys.modules)"
    assert quick("cuda", told) == ["True"]
    assert quick("llvm", told) == ["False"]


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("toolkit.live.measure.worker", ()),
        ("toolkit.networks.worker", ()),
        ("toolkit.live.tvm.stock", ()),
        ("toolkit.replay.execute.worker", ("polars", "pyarrow", "pydantic")),
        ("toolkit.live.tune.tune", ("polars", "pyarrow", "pydantic")),
        ("toolkit.networks.compile", ("polars", "pyarrow", "pydantic")),
        ("toolkit.live.confirm.session", ("polars", "pyarrow", "pydantic")),
    ],
)
def test_a_process_imports_nothing_heavy_that_it_may_not_need(
    module: str, needed: tuple[str, ...]
) -> None:
    found = ask(f"import sys, {module}; print(*(n for n in {HEAVY!r} if n in sys.modules))")
    assert set(found.split()) <= set(needed)
