"""A machine that has become slow: processes that keep every core busy."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

A_CORE = 2

NOT_THE_MACHINE = "the machine was not the one that the search read on"
"""What every command says of it."""


@contextlib.contextmanager
def slow_machine() -> Iterator[None]:
    """Keep all cores busy several times over."""
    # Linux shares a core among sessions first (autogroup): one each, or all count as one.
    burners = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], start_new_session=True)
        for _ in range(A_CORE * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()
