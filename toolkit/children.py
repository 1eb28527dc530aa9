"""Child processes: they import nothing from the current folder and end with their parent.

The toolkit starts all its processes here, for two reasons. With ``-m`` and ``-c`` Python imports
from the current folder first, and an unpacked folder of logs may hold a ``numpy.py``. And a parent
may be killed by a signal that it cannot catch, while its child runs a program that never ends.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import orjson

# Runs in any Python from 3.7 on: a child may be the interpreter of an older TVM. Linux sends the
# signal when the thread that started the child ends (prctl(2), PR_SET_PDEATHSIG = 1), hence
# '_starter'. If the parent ended before prctl was called, the child has another parent by then.
_BEGIN = """
import os, sys
if sys.path[:1] == [""]:
    del sys.path[0]
parent, what = int(sys.argv[1]), sys.argv[2]
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() != parent:
    os._exit(1)
import runpy
sys.argv = sys.argv[2:]
if what.endswith(".py"):
    runpy.run_path(what, run_name="__main__")
else:
    runpy.run_module(what, run_name="__main__", alter_sys=True)
"""


CALM = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Environment variables of every child, unless the user's environment sets them.

OpenMP threads that wait by spinning make training a hundred times slower as soon as anything else
runs on the machine (measured: 118 s against 0.4 s for a small model with two threads on two busy
cores). The variable must be set before LightGBM or XGBoost loads its runtime.
"""


_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def python(what: str, *arguments: str, interpreter: str = sys.executable) -> list[str]:
    """Return the command that runs a module or a script (a path ending in ``.py``) as a child."""
    return [interpreter, "-c", _BEGIN, str(os.getpid()), what, *arguments]


def start(
    command: Sequence[str], *, environment: Mapping[str, str] = {}, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a command in its own session; ``options`` are passed to ``Popen``.

    A keyboard interrupt does not reach the child: the parent decides when to end it.
    """
    # PYTHONSAFEPATH is for Python processes that the child starts, such as TVM's builders.
    variables = {**CALM, **os.environ, "PYTHONSAFEPATH": "1", **environment}

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(command), env=variables, start_new_session=True, **options)

    return _starter(os.getpid()).submit(begin).result()


def available_processors() -> int:
    """Number of processors that this process may use, so of children that can run in parallel."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def run_logged(
    command: Sequence[str], log: Path, *, cwd: Path, environment: Mapping[str, str] = {}
) -> int:
    """Run a command until it ends, with its output in a file; return its exit status.

    An interrupt ends the command, too.
    """
    with log.open("wb") as written:
        process = start(
            command,
            environment=environment,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            cwd=cwd,
        )
        try:
            return process.wait()
        finally:
            end(process)


def last_line(log: Path) -> str:
    """Last line of a command's output, at most 200 characters; empty if there is no output."""
    return "".join(log.read_text(errors="replace").strip().splitlines()[-1:])[:200]


class Lines:
    """Exchange JSON objects with a child, one per line, over its standard input and output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._buffer = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; raise ``OSError`` if the child no longer reads."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(message) + b"\n")
        self._process.stdin.flush()

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """Read the next line; ``None`` if the process ended or the time is over."""
        stream = self._process.stdout
        assert stream is not None
        deadline = time.perf_counter() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                remaining = deadline - time.perf_counter()
                if remaining <= 0 or not selector.select(remaining):
                    return None
                chunk = os.read(stream.fileno(), 1 << 16)
                if not chunk:
                    # The child ended: its exit status may come later (a core dump takes time).
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(timeout=20)
                    return None
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = orjson.loads(line)
        return reply


def killed_from_outside(process: subprocess.Popen[bytes]) -> bool:
    """Whether a user or the system (out of memory) ended it; a crash raises other signals."""
    return -(process.poll() or 0) in _FROM_OUTSIDE


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started, unless it has ended."""
    # After it has been waited for, its process id may belong to another process.
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started, wait for it, and close its pipes."""
    kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def end_group_with_this() -> None:
    """Make sure that this process's group is killed when this process ends, for any reason.

    For a child (``start``) whose libraries start processes: without this they would go on with a
    build of minutes, or with a program that never ends. A second process waits for the end of this
    one. Call it before any thread is started.
    """
    if not hasattr(os, "fork") or os.getpgrp() != os.getpid():
        return  # this process does not lead its group
    waits, held = os.pipe()  # started programs do not inherit them
    if os.fork():
        os.close(waits)
        return
    os.close(held)
    os.read(waits, 1)
    os.killpg(0, signal.SIGKILL)


@cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """The one thread of this process that starts children; it lives as long as the process."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"children-of-{pid}")
