"""A tracker and two servers of TVM's RPC on loopback, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tvm import rpc

KEY = "board"

# Of starting one process: these tests are not about TVM's servers.
TRIES = 2


class Farm:
    """A tracker and servers of the key ``board``, each in a process group of its own.

    ``python`` runs the servers.
    """

    def __init__(
        self, servers: int = 2, wait_s: float = 60, python: str | Path = sys.executable
    ) -> None:
        self.port = _free_port()
        self.servers: list[subprocess.Popen[bytes]] = []
        self._wait_s, self._python = wait_s, str(python)
        self._open = contextlib.ExitStack()
        self._log = Path(self._open.enter_context(tempfile.TemporaryDirectory())) / "log"
        try:
            self._start(0, "rpc_tracker", *_ports(self.port))
            for _ in range(servers):
                self.add_server()
        except BaseException:
            self.close()
            raise

    def add_server(self) -> None:
        """Start one more server, while nobody holds another."""
        alive = sum(process.poll() is None for process in self.servers)
        tracker = ("--tracker", f"127.0.0.1:{self.port}", "--key", KEY)
        # A port of its own: a server binds one with SO_REUSEADDR before it listens, so that two
        # which look in the same range may bind the same, and one dies (TVM 0.27, rpc/server.py).
        ports = _ports(_free_port())
        self.servers.append(self._start(alive + 1, "rpc_server", *tracker, *ports))

    @property
    def device(self) -> str:
        """As ``--device`` takes it."""
        return f"rpc 127.0.0.1:{self.port} {KEY}"

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process and the workers it has."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """End all of them, the tracker last."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, servers: int, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process; return when the tracker answers and so many servers are free."""
        for _ in range(TRIES):
            with self._log.open("ab") as said:
                process = subprocess.Popen(
                    [
                        self._python if servers else sys.executable,
                        "-m",
                        f"tvm.exec.{module}",
                        "--host",
                        "127.0.0.1",
                        *arguments,
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            self._open.callback(self.kill, process)
            if self._is_up(process, servers):
                return process
            self.kill(process)
        raise RuntimeError(f"{module} did not come up; it said:\n{self.said()}")

    def said(self) -> str:
        """The end of what tracker and servers wrote."""
        return self._log.read_text(errors="replace")[-4000:]

    def _is_up(self, process: subprocess.Popen[bytes], servers: int) -> bool:
        deadline = time.monotonic() + self._wait_s
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                # TVM's own client would wait for 5 s when nobody answers yet.
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                known = rpc.connect_tracker("127.0.0.1", self.port).summary()
                # A server is known before it takes a client: it says so in a message of its own.
                if known["queue_info"].get(KEY, {}).get("free", 0) >= servers:
                    return True
            time.sleep(0.2)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ports(port: int) -> tuple[str, ...]:
    """Options of TVM's servers: this port and no other."""
    return "--port", str(port), "--port-end", str(port + 1)
