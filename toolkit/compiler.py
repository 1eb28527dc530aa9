"""Which TVM is installed. Only the live phase and TVM's own features need it."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from toolkit.errors import ToolkitError

SUPPORTED = "0.27"
"""Version of TVM that the toolkit works with: its spaces, databases and measuring processes."""

_INSTALL = "pip install 'tvm-tuning-toolkit[live]', in an environment of its own"


def installed_tvm() -> str | None:
    """Return the version of the TVM that an import would find (not imported here), or ``None``.

    For a TVM that was built but not installed, the version is that of its ``_version.py``, or
    ``unknown``.
    """
    spec = find_spec("tvm")
    if spec is None or spec.origin is None:
        return None
    with suppress(PackageNotFoundError):
        return version("apache-tvm")
    written = Path(spec.origin).with_name("_version.py")
    text = written.read_text(encoding="utf-8") if written.is_file() else ""
    found = re.search(r"version = ['\"]([^'\"]+)", text)
    return found.group(1) if found else "unknown"


def require_tvm() -> None:
    """Raise ``ToolkitError`` if TVM is missing or has another version (``unknown`` passes)."""
    found = installed_tvm()
    if found is None:
        raise ToolkitError("this needs TVM, which is not installed", cure=_INSTALL)
    if found != "unknown" and found.split(".")[:2] != SUPPORTED.split("."):
        raise ToolkitError(
            f"TVM {found} is installed, but the toolkit needs TVM {SUPPORTED}", cure=_INSTALL
        )
