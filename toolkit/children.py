"""Child processes: they import nothing from the current folder and end with their parent.

Every process that the toolkit starts is started here. A folder of logs that was unpacked may hold a
``numpy.py``; Python would put the current folder first for ``-m`` and ``-c``. And a parent may be
killed by a signal that it cannot answer, while a child runs a program that never ends.
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

# Runs in any Python from 3.7 on: a child may be an older TVM's interpreter. Linux sends the signal
# when the thread ends that started the child (prctl(2), PR_SET_PDEATHSIG = 1), hence '_starter';
# a parent that ended before that was set is no longer the child's parent.
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
"""Environment of processes that train, where the user's own says nothing else.

OpenMP threads that wait by spinning make training a hundred times slower as soon as anything else
runs on the machine (measured: 118 s against 0.4 s for a small model with two threads on two busy
cores). It has to be said before LightGBM or XGBoost loads its runtime.
"""


_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def python(what: str, *arguments: str, interpreter: str = sys.executable) -> list[str]:
    """Command that runs a module, or a script by its path ending in ``.py``, as a child."""
    return [interpreter, "-c", _BEGIN, str(os.getpid()), what, *arguments]


def start(
    command: Sequence[str], *, environment: Mapping[str, str] = {}, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; ``options`` are those of ``Popen``.

    An interrupt from the keyboard does not reach it: its parent says what becomes of it.
    """
    # For Python processes that it starts in turn, as TVM's builders do.
    variables = {**CALM, **os.environ, "PYTHONSAFEPATH": "1", **environment}

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(command), env=variables, start_new_session=True, **options)

    return _starter(os.getpid()).submit(begin).result()


def available_processors() -> int:
    """Processors that this process may use, and so many children beside one another."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def run_logged(
    command: Sequence[str], log: Path, *, cwd: Path, environment: Mapping[str, str] = {}
) -> int:
    """Run a command until it ends, its output in a file; return its exit status.

    Interrupted, it ends the command: nobody would read what that goes on to do.
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
    """The last line of a command's output, at most 200 characters; empty where there is none."""
    return "".join(log.read_text(errors="replace").strip().splitlines()[-1:])[:200]


class Lines:
    """One JSON object a line to a child's standard input, and from its standard output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._buffer = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; raise ``OSError`` when nobody reads."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(message) + b"\n")
        self._process.stdin.flush()

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """Read the next line; ``None`` when the process ended or took longer."""
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
                    # It ended: the system may need a moment to say how (a core dump).
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(timeout=20)
                    return None
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = orjson.loads(line)
        return reply


def killed_from_outside(process: subprocess.Popen[bytes]) -> bool:
    """Whether somebody else ended it, or memory ran out; one that crashes raises other signals."""
    return -(process.poll() or 0) in _FROM_OUTSIDE


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it started, unless it has ended."""
    # Once it was waited for, its number may be another's.
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it started, and close its pipes."""
    kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def end_group_with_this() -> None:
    """Have this process's group killed when this process ends, whatever ends it.

    For a child (``start``) in which others start processes: those would finish what they do, a
    build of minutes or a program that never ends, with nobody to hear of it. A second process
    waits for the end. Called before there are threads.
    """
    if not hasattr(os, "fork") or os.getpgrp() != os.getpid():
        return  # the group is not its own
    waits, held = os.pipe()  # no program that is started inherits them
    if os.fork():
        os.close(waits)
        return
    os.close(held)
    os.read(waits, 1)
    os.killpg(0, signal.SIGKILL)


@cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """The one thread of this process that starts children: it lives as long as the process."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"children-of-{pid}")
