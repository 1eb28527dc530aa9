"""Control of a measuring process: send programs, wait within limits, replace it when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from toolkit import children
from toolkit.errors import LiveError
from toolkit.live.measure.machine import places_for, read_target
from toolkit.live.measure.program import REFUSED, MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.records import TrialState

START_TIMEOUT_S = 120.0

# For an unscheduled program, which is slow but runs only a few times.
UNSCHEDULED_TIMEOUT_S = 120.0
# For a check: a scheduled program runs once and its outputs are compared.
CHECK_TIMEOUT_S = 30.0

# ``patience`` applies after so many builds, and never gives a build less than so many seconds.
BUILDS_KNOWN, LEAST_PATIENCE_S = 8, 3.0


class Device:
    """One measuring process on this machine (``serve.py``); a context manager.

    The process starts with the first request. It is replaced after ``max_builds`` builds, because
    a compiler's memory only grows. ``rpc`` connects it to a tracker (``host``, ``port``, ``key``).
    ``command`` starts another process with the same protocol, and ``settings`` are sent to it with
    target and cores. With ``patience`` a build is given up when it takes that many times the
    median build time, even before the protocol's limit: a few programs explode when they are
    unrolled, and the others would wait for them.
    """

    def __init__(
        self,
        target: str,
        protocol: Protocol,
        *,
        max_builds: int = 400,
        rpc: dict[str, Any] | None = None,
        command: Sequence[str] | None = None,
        settings: dict[str, Any] | None = None,
        patience: float | None = None,
    ) -> None:
        self.target, self.protocol, self.rpc = target, protocol, rpc
        self.max_builds, self.patience = max_builds, patience
        self._build_s: list[float] = []
        self.command = list(command or children.python("toolkit.live.measure.worker"))
        self.settings = dict(settings or {})
        self.restarts = 0
        # Not for programs that run elsewhere: this machine does not place their threads.
        self._bound = () if rpc else self._places(protocol)
        self._process: subprocess.Popen[bytes] | None = None
        self._builds = 0
        self._held: set[str] = set()
        self._reference: Program | None = None
        self._has_reference = self._killed = False
        # Output of the process, for the message when it does not start.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the device

    @staticmethod
    def _places(protocol: Protocol) -> tuple[int, ...]:
        """Return one processor for each thread of the program; empty: the system decides."""
        if not hasattr(os, "sched_setaffinity"):
            return ()
        if not protocol.cores:
            return places_for(protocol.threads)
        return protocol.cores if 1 < protocol.threads <= len(protocol.cores) else ()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def measure(
        self, program: Program, *, keep: bool = False, bar_s: float | None = None
    ) -> MeasureResult:
        """Build a program (unless it is built already) and time it.

        ``keep`` keeps the build for further readings. ``bar_s`` is the best latency so far, for
        protocols that drop clearly slower programs.
        """
        return self._ask(program, "measure", keep=keep, **self._dropped(bar_s))

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Run ``work`` at once: this process builds and measures one program after the other."""
        work()

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None] = lambda: None
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Measure one program after the other; ``bar`` returns the best latency so far (s)."""
        for position, program in enumerate(programs):
            yield position, self.measure(program, bar_s=bar())

    def build(self, program: Program) -> MeasureResult:
        """Build a program; the process keeps it until it is measured."""
        reading = self._ask(program, "build")
        if reading.state is TrialState.OK:
            self._held.add(program.key)
        return reading

    def export(self, program: Program, path: str) -> MeasureResult:
        """Build a program into a file, which ``run_artifact`` can load elsewhere."""
        return self._ask(program, "export", path=path)

    def run_artifact(
        self, program: Program, path: str, *, bar_s: float | None = None
    ) -> MeasureResult:
        """Load a file that ``export`` wrote, on this process's device, and time the program."""
        unsent = replace(program, text="")
        return self._ask(unsent, "run_artifact", path=path, **self._dropped(bar_s))

    def _dropped(self, bar_s: float | None) -> dict[str, float]:
        if bar_s is None or self.protocol.drop_above <= 0:
            return {}
        return {"drop_above_s": bar_s * self.protocol.drop_above}

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def set_reference(self, program: Program) -> MeasureResult:
        """Run the unscheduled program once and keep its outputs in the process."""
        self._reference = program
        return self._ask(program, "reference")

    def check(self, program: Program, *, tolerance: float = 1e-3) -> MeasureResult:
        """Compare a program's outputs with the reference; tolerance as a share of their range."""
        return self._ask(program, "check", tolerance=tolerance)

    def start(self) -> None:
        """Start the process now; raise ``LiveError`` when it does not start."""
        self._start()
        self._signal("SIGSTOP")

    def close(self) -> None:
        """End the process; the device cannot be used any more."""
        self.stop()
        self._log.close()

    def stop(self) -> None:
        """End the process; the next request starts a new one."""
        self._signal("SIGCONT")
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        children.end(process)

    def _start(self) -> None:
        # A new process would lose programs that are built and wait to be measured.
        if self._process is not None and (self._builds < self.max_builds or self._held):
            return
        self.stop()
        self._process = children.start(
            self.command,
            environment={"TVM_NUM_THREADS": str(self.protocol.threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._lines = children.Lines(self._process)
        self._builds = 0
        self._held.clear()
        self._has_reference = False
        self._lines.send(
            {
                "target": read_target(self.target),
                "cores": list(self.protocol.cores),
                "bound": list(self._bound),
                "rpc": self.rpc,
                **self.settings,
            }
        )
        ready = self._lines.receive(START_TIMEOUT_S)
        if ready is None or not ready["ready"]:
            self._kill()
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            said = "".join(last)[-300:] if ready is None else ready["error"].splitlines()[-1]
            raise LiveError(
                f"the measuring process did not start: {said}",
                cure="run python -c 'import tvm': it needs the pinned apache-tvm and apache-tvm-ffi"
                if self.rpc is None
                else "check that the tracker is running and has a free device with this key",
            )

    def _signal(self, name: str) -> None:
        """Suspend the process until its next request (SIGSTOP), or resume it (SIGCONT).

        The threads of TVM's pool spin for a while after each parallel loop (300,000 yields, unless
        ``TVM_THREAD_POOL_SPIN_COUNT`` sets another number) and would slow down the next
        measurement. If they slept at once, short programs would pay the time to wake them. A
        suspended process takes no processor time, and continues in the same state.
        """
        # A process with a remote device must keep answering it.
        if self._process is not None and self.rpc is None and hasattr(signal, name):
            self._process.send_signal(getattr(signal, name))

    def _kill(self) -> None:
        if self._process is not None:
            # Its children too: a compiler that it started would disturb the next measurements.
            children.kill(self._process)
            self.restarts += 1
        self.stop()

    def _ask(self, program: Program, op: str, **more: Any) -> MeasureResult:
        """Send a request; send it once more if the process was killed from outside."""
        if program is REFUSED:
            return MeasureResult(TrialState.INSTANTIATION, error="TVM refuses its schedule")
        self._killed = False
        reading = self._once(program, op, **more)
        return self._once(program, op, **more) if self._killed else reading

    def _once(self, program: Program, op: str, **more: Any) -> MeasureResult:
        self._start()
        if op == "check" and self._reference is not None and not self._has_reference:
            # A new process does not have the reference outputs yet.
            known = self._once(self._reference, "reference")
            if known.state is not TrialState.OK:
                return known
            self._start()
        self._signal("SIGCONT")
        try:
            return self._answer(program, op, more)
        finally:
            self._signal("SIGSTOP")

    def _answer(self, program: Program, op: str, more: dict[str, Any]) -> MeasureResult:
        """Send one request and return its result."""
        if op != "build":
            self._held.discard(program.key)
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
            self._lines.send(message)
        except OSError:
            return self._died(started)
        least = {"reference": UNSCHEDULED_TIMEOUT_S, "check": CHECK_TIMEOUT_S}.get(op, 0.0)
        whole = max(least, self.protocol.build_timeout_s)
        reply = self._lines.receive(whole if least else self._build_limit_s())
        if reply is None:
            return self._died(started)
        build_s = time.perf_counter() - started
        if reply.get("built"):
            self._builds += bool(reply["fresh"])
            if reply["fresh"]:
                self._build_s.append(build_s)
            reply = self._lines.receive(max(least, self.protocol.run_timeout_s))
            while reply is not None and reply.get("again"):
                reply = self._lines.receive(self.protocol.run_timeout_s)
            if reply is None:
                return self._died(started, build_s)
        self._has_reference |= op == "reference" and reply["state"] == TrialState.OK.value
        lists = {name: tuple(value) for name, value in reply.items() if isinstance(value, list)}
        state = TrialState(reply["state"])
        return MeasureResult(**{"build_s": build_s, **reply, **lists, "state": state})

    def _build_limit_s(self) -> float:
        limit_s = self.protocol.build_timeout_s
        if self.patience is None or len(self._build_s) < BUILDS_KNOWN:
            return limit_s
        usual_s = statistics.median(self._build_s)
        return min(limit_s, max(LEAST_PATIENCE_S, self.patience * usual_s))

    def _died(self, started: float, build_s: float | None = None) -> MeasureResult:
        """End a process that did not answer. No ``build_s``: it was still building."""
        assert self._process is not None
        code, killed = self._process.poll(), children.killed_from_outside(self._process)
        elapsed = time.perf_counter() - started
        self._kill()
        self._killed = killed
        state, late = TrialState.RUNTIME, TrialState.RUN_TIMEOUT
        if build_s is None:
            state, late, build_s = TrialState.COMPILE, TrialState.BUILD_TIMEOUT, elapsed
        why = f"the measuring process ended with code {code}"
        if code is None:
            state, why = late, f"no answer within the {state.value} limit"
        return MeasureResult(state, build_s=build_s, run_s=elapsed - build_s, error=why)
