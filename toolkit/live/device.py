"""Drives the measuring process: sends programs, waits within limits, replaces it when it dies."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import orjson

from toolkit.errors import LiveError
from toolkit.live.protocol import Protocol
from toolkit.records import TrialState

START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Program:
    """A scheduled module as TVM's JSON, and the arguments of its entry function.

    ``arguments`` is ``[["TENSOR", dtype, shape], ...]``; the first ``inputs`` of them are read,
    the others written.
    """

    key: str
    text: str
    arguments: list[Any]
    inputs: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What one request to the worker gave; times in seconds."""

    state: TrialState
    run_times_s: tuple[float, ...] = ()
    build_s: float = 0.0
    run_s: float = 0.0
    foreign_share: float = 0.0
    retries: int = 0
    error: str | None = None


class Device:
    """One measuring process on this machine; a context manager.

    ``builds`` of one process are limited, since a compiler's memory only grows.
    """

    def __init__(self, target: str, protocol: Protocol, *, max_builds: int = 400) -> None:
        self.target = target
        self.protocol = protocol
        self.max_builds = max_builds
        self.restarts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._builds = 0
        self._buffer = b""
        # What the worker prints, kept for the message when it does not start.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the device

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def measure(self, program: Program, *, keep: bool = False) -> Reading:
        """Build and time a program; ``keep`` leaves it built for further readings."""
        return self._ask(program, "measure", keep=keep)

    def measure_many(self, programs: Sequence[Program]) -> Iterator[tuple[int, Reading]]:
        """Measure one after the other."""
        for position, program in enumerate(programs):
            yield position, self.measure(program)

    def set_reference(self, program: Program) -> Reading:
        """Run the unscheduled program once and keep its outputs in the worker."""
        return self._ask(program, "reference")

    def check(self, program: Program, *, tolerance: float = 1e-3) -> Reading:
        """Compare a program's outputs with the reference (relative to their range)."""
        return self._ask(program, "check", tolerance=tolerance)

    def close(self) -> None:
        """End the process; the device is done with."""
        self._stop()
        self._log.close()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._builds < self.max_builds:
            return self._process
        self._stop()
        environment = dict(os.environ, TVM_NUM_THREADS=str(self.protocol.threads))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "toolkit.live.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        self._builds = 0
        self._buffer = b""
        target: Any = self.target
        if target.lstrip().startswith("{"):
            target = orjson.loads(target)
        self._send({"target": target, "cores": list(self.protocol.cores)})
        if self._receive(START_TIMEOUT_S) is None:
            self._kill()
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise LiveError(
                "the measuring process did not start: " + "".join(last)[-300:],
                cure="try: python -c 'import tvm'; the pinned apache-tvm and ffi must be installed",
            )
        return self._process

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.restarts += 1
        self._stop()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(message) + b"\n")
        self._process.stdin.flush()

    def _receive(self, timeout_s: float) -> dict[str, Any] | None:
        """Next reply, or ``None`` when the process died or took too long."""
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout
        deadline = time.perf_counter() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                remaining = deadline - time.perf_counter()
                if remaining <= 0 or not selector.select(remaining):
                    return None
                chunk = os.read(stream.fileno(), 1 << 16)
                if not chunk:
                    return None
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = orjson.loads(line)
        return reply

    def _ask(self, program: Program, op: str, **more: Any) -> Reading:
        process = self._start()
        started = time.perf_counter()
        message = {
            "op": op,
            "key": program.key,
            "program": program.text,
            "arguments": program.arguments,
            "inputs": program.inputs,
            "protocol": self.protocol.to_dict(),
            **more,
        }
        try:
            self._send(message)
        except OSError:
            return self._died(process, started, "compile")
        reply = self._receive(self.protocol.build_timeout_s)
        if reply is None:
            return self._died(process, started, "compile")
        build_s = time.perf_counter() - started
        if reply.get("built"):
            self._builds += 1
            reply = self._receive(self.protocol.run_timeout_s)
            while reply is not None and reply.get("again"):
                reply = self._receive(self.protocol.run_timeout_s)
            if reply is None:
                return self._died(process, started, "runtime", build_s)
        return Reading(
            state=TrialState(reply["state"]),
            run_times_s=tuple(reply.get("run_times_s", ())),
            build_s=float(reply.get("build_s", build_s)),
            run_s=float(reply.get("run_s", 0.0)),
            foreign_share=float(reply.get("foreign_share", 0.0)),
            retries=int(reply.get("retries", 0)),
            error=reply.get("error"),
        )

    def _died(
        self,
        process: subprocess.Popen[bytes],
        started: float,
        stage: str,
        build_s: float | None = None,
    ) -> Reading:
        code = process.poll()
        elapsed = time.perf_counter() - started
        self._kill()
        if code is None:
            state = TrialState.BUILD_TIMEOUT if stage == "compile" else TrialState.RUN_TIMEOUT
            why = f"no answer within the {stage} limit"
        else:
            state = TrialState.COMPILE if stage == "compile" else TrialState.RUNTIME
            why = f"the measuring process ended with code {code}"
        built = elapsed if build_s is None else build_s
        return Reading(state=state, build_s=built, run_s=elapsed - built, error=why)
