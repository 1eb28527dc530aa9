"""A worker process that answers lines of JSON, with a limit on the time for each answer."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from toolkit import children


class WorkerProcess:
    """One process; ``ask`` gives ``None`` when it died or took too long, and then it is gone."""

    def __init__(
        self, command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] = {}
    ) -> None:
        self._timeout_s = timeout_s
        self._buffer = b""
        self._process = children.start(
            command,
            environment=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @property
    def alive(self) -> bool:
        """Whether the process can be asked."""
        return self._process.poll() is None

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Send one line and wait for one; ``None`` ends the process."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(orjson.dumps(message) + b"\n")
            self._process.stdin.flush()
            reply = orjson.loads(self._line())
        except (OSError, ValueError, TimeoutError, EOFError):
            self.close()
            return None
        return reply if isinstance(reply, dict) else None

    def _line(self) -> bytes:
        stream = self._process.stdout
        assert stream is not None
        deadline = time.monotonic() + self._timeout_s
        chunks = [self._buffer]
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in chunks[-1]:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not selector.select(remaining):
                    raise TimeoutError
                chunk = os.read(stream.fileno(), 1 << 20)
                if not chunk:
                    raise EOFError
                chunks.append(chunk)
        line, _, self._buffer = b"".join(chunks).partition(b"\n")
        return line

    def close(self) -> None:
        """End the process."""
        children.end(self._process)
