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
    """Keep the core of a program busy several times over, while programs are read in turns.

    These are programs of one thread. Elsewhere nothing is slow, and neither is it while processes
    start and build: that would only make the tests slow, and whatever runs beside them.
    """
    # Linux shares a core among sessions first (autogroup): one each, or all count as one.
    burners = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], start_new_session=True)
        for _ in range(A_CORE)
    ]

    def tell(number: int) -> None:
        for burner in burners:
            burner.send_signal(number)

    tell(signal.SIGSTOP)
    measure = Device.measure

    def measures(device: Device, *given: Any, **more: Any) -> Any:
        if not more.get("keep"):  # none of several that are read in turns
            return measure(device, *given, **more)
        # On a machine of a single core a block chooses none.
        for burner in burners:
            os.sched_setaffinity(burner.pid, device.protocol.cores or range(os.cpu_count() or 1))
        tell(signal.SIGCONT)
        try:
            return measure(device, *given, **more)
        finally:
            tell(signal.SIGSTOP)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Device, "measure", measures)
            yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()
