"""Devices behind TVM's RPC tracker: which are there, their linker, and their fingerprint.

A TVM server has one client at a time. It runs each session in its own process.
"""

from __future__ import annotations

import platform
import re
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import LiveError, first_line
from toolkit.live.measure.device import Device
from toolkit.live.measure.fingerprint import FILES, fingerprint_of
from toolkit.live.measure.machine import runs_on_cpu, tvm_target
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import OpenDevice
from toolkit.live.measure.worker import export_for, suffix_of
from toolkit.records import EMULATOR

# A tracker that does not answer within so many seconds is taken to be absent.
ANSWER_S = 5.0

FREE_S = 5.0
"""A server needs a moment between two clients; a device that is held for longer is in use."""

FILE_BYTES = 1 << 16
"""Bytes that are read of a file on a device, at most."""

FILES_S = 30
"""Seconds that a device has to send its files. A server that hangs keeps the device until then, so
this is less than a search waits for its last device (``apart.LAST_RECONNECT_S``)."""

_READ_FILE = f"""
@T.prim_func(s_tir=True)
def main(
    path: T.Buffer((256,), "uint8"),
    mode: T.Buffer((2,), "uint8"),
    text: T.Buffer(({FILE_BYTES},), "uint8"),
    count: T.Buffer((1,), "int64"),
):
    T.func_attr({{"tirx.noalias": True}})
    count[0] = T.int64(-1)
    stream: T.let = T.call_extern("handle", "fopen", path.data, mode.data)
    if not T.isnullptr(stream):
        count[0] = T.call_extern(
            "int64", "fread", text.data, T.int64(1), T.int64({FILE_BYTES}), stream
        )
        T.evaluate(T.call_extern("int32", "fclose", stream))
"""


@dataclass(frozen=True, slots=True)
class Remote:
    """Devices of one key behind an RPC tracker."""

    host: str
    port: int
    key: str

    @classmethod
    def parse(cls, text: str) -> Remote:
        """Read ``rpc HOST:PORT KEY``; raise ``LiveError`` for anything else."""
        found = re.fullmatch(r"\s*rpc\s+(\S+):(\d+)\s+(\S+)\s*", text)
        if found is None:
            raise LiveError(
                f"{text!r} is not of the form 'rpc HOST:PORT KEY'",
                cure="example: --device 'rpc 127.0.0.1:9190 my-board'",
            )
        return cls(found[1], int(found[2]), found[3])

    def _summary(self) -> dict[str, Any]:
        """Return the tracker's summary; raise ``OSError`` if there is no answer in time."""
        from tvm.rpc import base

        # TVM's own client would retry for a minute, and wait for an answer without a limit.
        magic = struct.pack("<i", base.RPC_TRACKER_MAGIC)
        with socket.create_connection((self.host, self.port), timeout=ANSWER_S) as asked:
            asked.sendall(magic)
            if base.recvall(asked, len(magic)) != magic:
                raise OSError("something else than a tracker")
            base.sendjson(asked, [base.TrackerCode.SUMMARY])
            code, summary = base.recvjson(asked)
        if code != base.TrackerCode.SUCCESS:
            raise OSError(f"the tracker refuses to say what it has: {summary}")
        return dict(summary)

    def count(self) -> int:
        """Return how many servers with the key the tracker has; raise ``LiveError`` if none."""
        try:
            keys = [str(info["key"]) for info in self._summary()["server_info"]]
        except Exception as error:
            raise LiveError(
                f"no tracker answers at {self.host}:{self.port}: {first_line(error)}",
                cure="start one: python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port 9190",
            ) from None
        servers = keys.count(f"server:{self.key}")
        if servers == 0:
            known = sorted({key.partition(":")[2] for key in keys})
            raise LiveError(
                f"the tracker has no device of the key {self.key!r}",
                cure=f"keys that it has: {', '.join(known) or 'none'}; start one on the device: "
                f"python -m tvm.exec.rpc_server --tracker HOST:{self.port} --key {self.key}",
            )
        return servers

    def free(self) -> int:
        """Return how many devices with the key are free; 0 if the tracker does not answer."""
        try:
            return int(self._summary()["queue_info"].get(self.key, {}).get("free", 0))
        except Exception:
            return 0

    def _comes_free(self) -> bool:
        """Wait until a device is free; return whether one is free in time."""
        deadline = time.monotonic() + FREE_S
        while self.free() == 0:
            try:
                self.count()
            except LiveError:
                return False  # no device to wait for
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def open(self, target: str, protocol: Protocol) -> SharedDevice:
        """Return a measuring process with its own device, to build, time and compare programs."""
        settings = {"linker": linker_for(target)}
        return SharedDevice(target, protocol, rpc=asdict(self), settings=settings)

    def arms(self, target: str) -> OpenDevice:
        """Return a function that opens a block's arms: all share one fresh process and device."""
        shared: SharedDevice | None = None

        def arm(protocol: Protocol) -> Device:
            nonlocal shared
            if shared is None or shared.closed:
                shared = self.open(target, protocol)
            return shared

        return arm

    def fingerprint(self, target: str) -> dict[str, Any] | None:
        """Return the facts that decide how fast the device is; ``None`` if they cannot be read.

        As ``machine_fingerprint``, with ``emulator`` if a machine of another architecture emulates
        the device. A small program on the device reads them from files of Linux.
        """
        if not runs_on_cpu(target) or not self._comes_free():
            return None
        try:
            # TVM's parser keeps the frames of its callers until garbage is collected. A session in
            # one of them would keep the device, so that the search finds it held.
            return fingerprint_of(self._files(_file_reader(target), linker_for(target)), target)
        except Exception:  # on other systems, whatever they raise
            return None

    def name(self, machine: str | None, fingerprint: Mapping[str, Any] | None) -> str:
        """Return the device's name in logs: the user's name for it, else its key."""
        emulated = " (emulated)" if fingerprint and EMULATOR in fingerprint else ""
        return f"{machine or self.key}{emulated}"

    def _files(self, built: Any, linker: str | None) -> dict[str, str]:
        """Return the texts of the ``FILES`` that exist on the device; ``built`` reads one."""
        import tvm
        from tvm import rpc

        tracker = rpc.connect_tracker(self.host, self.port)
        session = tracker.request(self.key, session_timeout=FILES_S)
        with tempfile.TemporaryDirectory(prefix="toolkit-built-") as folder:
            path = Path(folder) / f"files.{suffix_of(linker)}"
            export_for(built, str(path), linker)
            session.upload(bytearray(path.read_bytes()), path.name)
        read, device = session.load_module(path.name), session.device("cpu", 0)
        mode, texts = np.frombuffer(b"r\0", np.uint8), {}
        for name in FILES:
            given = np.frombuffer(name.encode().ljust(256, b"\0"), np.uint8)
            arrays = (given, mode, np.zeros(FILE_BYTES, np.uint8), np.zeros(1, np.int64))
            tensors = [tvm.runtime.tensor(array, device=device) for array in arrays]
            read["main"](*tensors)
            count = int(tensors[3].numpy()[0])
            if count >= 0:
                texts[name] = tensors[2].numpy()[:count].tobytes().decode(errors="replace")
        return texts


class SharedDevice(Device):
    """A measuring process that several threads may ask; its users close it together."""

    def __init__(self, *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.closed = False
        self._one_asks = threading.RLock()

    def close(self) -> None:
        """End the process; the device cannot be used any more."""
        super().close()
        self.closed = True

    def _ask(self, program: Program, op: str, **more: Any) -> MeasureResult:
        with self._one_asks:
            return super()._ask(program, op, **more)


def _file_reader(target: str) -> Any:
    """Return ``_READ_FILE``, built for the target."""
    import tvm

    function = tvm.script.from_source(_READ_FILE)
    return tvm.compile(tvm.IRModule({"main": function}), target=tvm_target(target))


def linker_for(target: str) -> str | None:
    """Return a compiler on this machine that links for the target's architecture, or ``None``.

    It has a name as in Debian, with the target's ``mtriple``: ``aarch64-linux-gnu-g++``. Without
    one, the device's server links what it receives.
    """
    triple = str(tvm_target(target).attrs.get("mtriple", ""))
    if not triple or triple.partition("-")[0] == platform.machine():
        return None
    found = (shutil.which(f"{triple}-{name}") for name in ("g++", "gcc", "clang++"))
    return next(filter(None, found), None)
