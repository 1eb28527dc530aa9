"""A machine that has become slow: processes that keep every core busy."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from toolkit.live.measure.device import Device

A_CORE = 6
"""So many that programs are far slower than in a search that had other tests beside it."""

NOT_THE_MACHINE = "the machine was much slower than during the search"
"""What every command says of it."""


@contextlib.contextmanager
def slow_machine() -> Iterator[None]:
    """Keep all cores busy several times over, while programs that were built are read in turns.

    While processes start and build, nothing is read: slow cores would only make the tests slow,
    this one and whatever runs beside it.
    """
    # Linux shares a core among sessions first (autogroup): one each, or all count as one.
    burners = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], start_new_session=True)
        for _ in range(A_CORE * (os.cpu_count() or 1))
    ]

    def tell(number: int) -> None:
        for burner in burners:
            burner.send_signal(number)

    tell(signal.SIGSTOP)
    build, measure = Device.build, Device.measure

    def builds(device: Device, *given: Any, **more: Any) -> Any:
        tell(signal.SIGSTOP)
        return build(device, *given, **more)

    def measures(device: Device, *given: Any, **more: Any) -> Any:
        if more.get("keep"):  # of several that are read in turns
            tell(signal.SIGCONT)
        return measure(device, *given, **more)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Device, "build", builds)
            patch.setattr(Device, "measure", measures)
            yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()
