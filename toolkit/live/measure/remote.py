"""Devices behind TVM's RPC tracker: who is there, what links for them, and what they are.

A server of TVM has one client at a time, and does what it is asked in a process of its own.
"""

from __future__ import annotations

import platform
import re
import shutil
import socket
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

# A tracker that does not answer for so many seconds is none.
ANSWER_S = 5.0

FREE_S = 5.0
"""A server takes a moment from one client to the next; what is held for longer is in use."""

FILE_BYTES = 1 << 16
"""So much is read of a file on a device."""

FILES_S = 30
"""Seconds that a device has to read them. Its server may hang after that, and has the device until
then: less than a search waits for the last one (``apart.LAST_RECONNECT_S``)."""

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
                f"{text!r} names no device", cure="example: --device 'rpc 127.0.0.1:9190 my-board'"
            )
        return cls(found[1], int(found[2]), found[3])

    def _summary(self) -> dict[str, Any]:
        """What the tracker says; raise whatever TVM does where it says nothing in time."""
        from tvm import rpc

        # TVM itself would try again for a minute, and wait for an answer for ever.
        socket.create_connection((self.host, self.port), timeout=ANSWER_S).close()
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(ANSWER_S)
        try:
            return dict(rpc.connect_tracker(self.host, self.port).summary())
        finally:
            socket.setdefaulttimeout(before)

    def count(self) -> int:
        """Number of servers of the key that the tracker knows; raise ``LiveError`` when none."""
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
                f"the tracker knows no device of the key {self.key!r}",
                cure=f"known keys: {', '.join(known) or 'none'}; start one on the device: "
                f"python -m tvm.exec.rpc_server --tracker HOST:{self.port} --key {self.key}",
            )
        return servers

    def free(self) -> int:
        """Number of devices of the key that nobody holds; 0 when the tracker does not answer."""
        try:
            return int(self._summary()["queue_info"].get(self.key, {}).get("free", 0))
        except Exception:
            return 0

    def _comes_free(self) -> bool:
        """Wait for a device that nobody holds; whether there is one in time."""
        deadline = time.monotonic() + FREE_S
        while self.free() == 0:
            try:
                self.count()
            except LiveError:
                return False  # there is none to wait for
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def open(self, target: str, protocol: Protocol) -> SharedDevice:
        """A measuring process with a device for itself, to build, time and compare one program."""
        settings = {"linker": linker_for(target)}
        return SharedDevice(target, protocol, rpc=asdict(self), settings=settings)

    def arms(self, target: str) -> OpenDevice:
        """Opens the arms of a block: one fresh process there, since a server has one client."""
        shared: SharedDevice | None = None

        def arm(protocol: Protocol) -> Device:
            nonlocal shared
            if shared is None or not shared.users:
                shared = self.open(target, protocol)
            return shared

        return arm

    def fingerprint(self, target: str) -> dict[str, Any] | None:
        """What decides how fast the device runs programs; ``None`` where it does not tell.

        As ``machine_fingerprint``; ``emulator`` is there where the device is emulated by a machine
        of another architecture. Read from files of Linux by a small program that runs there.
        """
        if not runs_on_cpu(target) or not self._comes_free():
            return None
        try:
            return fingerprint_of(self._files(target), target)
        except Exception:  # whatever another system says to that
            return None

    def name(self, machine: str | None, fingerprint: Mapping[str, Any] | None) -> str:
        """What logs call the device: what the user calls it, else its key."""
        emulated = " (emulated)" if fingerprint and EMULATOR in fingerprint else ""
        return f"{machine or self.key}{emulated}"

    def _files(self, target: str) -> dict[str, str]:
        """Texts of those of ``FILES`` that are there."""
        import tvm
        from tvm import rpc

        linker = linker_for(target)
        function = tvm.script.from_source(_READ_FILE)
        built = tvm.compile(tvm.IRModule({"main": function}), target=tvm_target(target))
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
    """A measuring process that several may have open: it ends when the last one closes it."""

    def __init__(self, *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.users = 0
        self._one_asks = threading.RLock()

    def __enter__(self) -> SharedDevice:
        self.users += 1
        return self

    def __exit__(self, *raised: object) -> None:
        self.users -= 1
        if not self.users:
            self.close()

    def _ask(self, program: Program, op: str, **more: Any) -> MeasureResult:
        with self._one_asks:
            return super()._ask(program, op, **more)


def linker_for(target: str) -> str | None:
    """The compiler here that links for a device of another architecture, where there is one.

    It is called as in Debian, by the target's ``mtriple``: ``aarch64-linux-gnu-g++``. Without one
    the device's server links what it is sent.
    """
    triple = str(tvm_target(target).attrs.get("mtriple", ""))
    if not triple or triple.partition("-")[0] == platform.machine():
        return None
    found = (shutil.which(f"{triple}-{name}") for name in ("g++", "gcc", "clang++"))
    return next(filter(None, found), None)
