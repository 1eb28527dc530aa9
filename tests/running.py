"""The toolkit as users run it: processes of their own, and whatever those leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from typer.testing import CliRunner

from toolkit.cli.main import app

TOOLKIT = str(Path(sys.executable).with_name("toolkit"))
MARK = "TOOLKIT_TEST_RUN"


class Running:
    """One run of a command; its processes are known by a variable that they inherit."""

    def __init__(self, *arguments: Any, cwd: Path, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            # Whoever runs the tests in the background ignores interrupts, and so would this.
            ["env", "--default-signal=INT", TOOLKIT, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, **environment, MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Every process of this run that is there, orphans included."""
        found = []
        for process in psutil.process_iter():
            try:
                dead = process.status() == psutil.STATUS_ZOMBIE
                if not dead and process.environ().get(MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end(self, number: int) -> tuple[str, str]:
        """Send a signal and wait until the command is gone: standard output, standard error."""
        self.process.send_signal(number)
        return self.process.communicate()

    def left(self) -> list[str]:
        """Processes that outlive the command (after a moment for the system to end them)."""
        found: list[psutil.Process] = []

        def gone() -> bool:
            found[:] = self.processes()
            return not found

        until(gone)
        return [str(process) for process in found]

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, standard output, standard error."""
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err


def toolkit(*arguments: Any, cwd: Path, **environment: str) -> tuple[int, str, str]:
    """Run a command to its end: exit code, standard output, standard error."""
    return Running(*arguments, cwd=cwd, **environment).finish()


def here(*arguments: Any, cwd: Path) -> tuple[int, str, str]:
    """Run a command in this process, which saves starting one; else as ``toolkit``."""
    before = Path.cwd()
    os.chdir(cwd)
    try:
        done = CliRunner().invoke(app, [*map(str, arguments)])
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def until(true: Callable[[], Any], seconds: float = 60.0) -> bool:
    """Wait until something is true, or give up."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
