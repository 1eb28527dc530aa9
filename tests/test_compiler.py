"""The toolkit without TVM, or beside one that does not fit; and what an import leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def package(folder: Path, version: str) -> Path:
    """A TVM that was built and not installed: its version is what the build wrote down."""
    (folder / "tvm").mkdir(parents=True)
    (folder / "tvm" / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    (folder / "tvm" / "_version.py").write_text(f"version = '{version}'\n")
    return folder


def ask(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


WITHOUT = """
import importlib.metadata as metadata, importlib.util as util, sys
find, version = util.find_spec, metadata.version
{change}
from toolkit import compiler
compiler.find_spec, compiler.version = util.find_spec, metadata.version
from toolkit.errors import ToolkitError
try:
    import toolkit.live
except ToolkitError as error:
    print(error)
"""
NONE = "util.find_spec = lambda name: None if name == 'tvm' else find(name)"
OTHER = "metadata.version = lambda name: '0.19.0' if name == 'apache-tvm' else version(name)"


@pytest.mark.parametrize(
    ("change", "told"), [(NONE, "not installed"), (OTHER, "TVM 0.19.0 is installed"), ("", "")]
)
def test_a_missing_or_other_tvm_is_named_with_its_cure(change: str, told: str) -> None:
    done = ask(WITHOUT.format(change=change))
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
    assert ("tvm-tuning-toolkit[live]" in done.stdout) == bool(told)


def test_the_version_of_a_tvm_that_was_built_is_read_and_not_imported(tmp_path: Path) -> None:
    folder = package(tmp_path / "built", "0.30.dev1")
    code = f"""
import sys
sys.path[:0] = [{str(folder)!r}]
from toolkit import compiler
def version(name):
    raise compiler.PackageNotFoundError
compiler.version = version
print(compiler.installed_tvm(), "tvm" in sys.modules)
"""
    assert ask(code).stdout.split() == ["0.30.dev1", "False"]


def test_an_import_changes_no_environment_variable() -> None:
    """Libraries that are imported later may; of the toolkit's own there is none."""
    code = (
        "import os; before = dict(os.environ); import toolkit; print(dict(os.environ) == before); "
        "import toolkit.training, toolkit.live; print('OMP_WAIT_POLICY' in os.environ)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout.split() == ["True", "False"]
