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


def test_the_quick_import_of_tvm_finds_the_same_functions() -> None:
    """``tvm._ffi_api`` and its like are filled with what is registered when they are imported."""
    told = (
        "import sys, tvm_ffi.registry as r; u = r.list_global_func_names; {how}; "
        "assert r.list_global_func_names is u; "
        "print(*sorted(f'{{n}}.{{k}}' for n, m in list(sys.modules.items()) "
        "if n.startswith('tvm') and '_ffi' in n for k in dir(m)))"
    )
    usual = ask(told.format(how="import tvm"))
    quick = "from toolkit.live.measure.quick_import import import_tvm; import_tvm()"
    assert ask(told.format(how=quick)) == usual
    assert usual.count("tvm.relax.op._ffi_api.") > 100


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
