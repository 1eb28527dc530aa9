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


class Farm:
    """A tracker and servers of the key ``board``, each in a process group of its own."""

    def __init__(self, servers: int = 2, wait_s: float = 120) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.processes: list[subprocess.Popen[bytes]] = []
        self.servers: list[subprocess.Popen[bytes]] = []
        self._open = contextlib.ExitStack()
        self._log = Path(self._open.enter_context(tempfile.TemporaryDirectory())) / "log"
        try:
            self._start("rpc_tracker", "--port", str(self.port), "--port-end", str(self.port + 1))
            self._wait(0, wait_s)
            for count in range(1, servers + 1):
                tracker = f"127.0.0.1:{self.port}"
                self.servers.append(self._start("rpc_server", "--tracker", tracker, "--key", KEY))
                # One after the other: a server binds a port with SO_REUSEADDR before it listens,
                # so that two at once may bind the same one, and the second to listen dies (TVM
                # 0.27, rpc/server.py).
                self._wait(count, wait_s)
        except BaseException:
            self.close()
            raise

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

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tvm.exec.{module}", "--host", "127.0.0.1", *arguments],
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
        self.processes.append(process)
        self._open.callback(self.kill, process)
        return process

    def _wait(self, servers: int, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if any(process.poll() is not None for process in self.processes):
                break
            with contextlib.suppress(OSError):
                # TVM's own client would wait for 5 s when nobody answers yet.
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                tracker = rpc.connect_tracker("127.0.0.1", self.port)
                if len(tracker.summary()["server_info"]) >= servers:
                    return
            time.sleep(0.2)
        said = self._log.read_text(errors="replace")[-4000:]
        raise RuntimeError(f"the tracker or its servers did not come up; they said:\n{said}")
