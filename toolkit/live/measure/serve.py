"""The measuring process's side of the protocol: read a request, write the results.

Each message is one JSON object on one line, in both directions (``toolkit.children.Lines``). The
process reports a finished build before it runs the program, so that the caller knows which of the
two took too long. The process is disposable: a crash or a time-out costs one trial, not the run.

This file needs Python 3.7 or later, and no toolkit: the process of an older TVM runs it as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


class WrongAnswerError(Exception):
    """A program wrote where it must not, or its outputs differ from the unscheduled program's."""


def told(error: Exception) -> str:
    """Return the text of an error, or the end of a long one."""
    return f"{type(error).__name__}: {error}"[-600:]


def serve(bench_of: Any, told: Any = told) -> None:
    """Answer requests until standard input ends.

    ``bench_of`` takes the settings and returns an object with these methods: ``build(request)``
    compiles a program or loads a compiled one. ``run(built, request, again)`` times it, and calls
    ``again`` before it repeats a reading. ``outputs(built, request)`` runs it once and returns the
    arrays that it wrote. ``export(request)`` compiles it into a file. ``told`` formats errors.
    """
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    # Output of TVM, LLVM and the user's files must not mix with the replies.
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message, ensure_ascii=False) + "\n")
        replies.flush()

    try:
        settings = json.loads(requests.readline())
        if settings["cores"] and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, settings["cores"])
        server = _Server(bench_of(settings), told, say)
    except Exception as error:  # any fault of this interpreter or target
        say({"ready": False, "error": f"{type(error).__name__}: {error}"[-600:]})
        return
    say({"ready": True})
    for line in requests:
        say(server.answer(json.loads(line)))


def random_arrays(tensors: list[Any]) -> list[Any]:
    """Return an array for each ``(dtype, shape)``; the same values for the same list."""
    import numpy as np

    generator = np.random.default_rng(0)
    return [
        generator.uniform(-1.0, 1.0, shape).astype(dtype)
        if dtype.startswith("float")
        else generator.integers(0, 8, shape).astype(dtype)
        for dtype, shape in tensors
    ]


class _Server:
    """Keeps built programs until they are measured, and the unscheduled program's outputs."""

    def __init__(self, bench: Any, told: Any, say: Any) -> None:
        self.bench, self.told, self.say = bench, told, say
        self.built: dict[str, Any] = {}
        self.reference: list[Any] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; a failure is an answer, too."""
        started = time.perf_counter()
        op, key, stage = request["op"], request["key"], "compile"
        fresh = key not in self.built
        try:
            if op == "export":
                self.bench.export(request)
            elif fresh:
                self.built[key] = self.bench.build(request)
            answer: dict[str, Any] = {"state": "ok", "build_s": time.perf_counter() - started}
            self.say({"built": True, "build_s": answer["build_s"], "fresh": fresh})
            if op in ("export", "build"):
                return answer
            built, stage, started = self.built[key], "runtime", time.perf_counter()
            if op == "reference":
                self.reference = self.bench.outputs(built, request)
            elif op == "check":
                outputs = self.bench.outputs(built, request)
                answer["difference"] = _compare(outputs, self.reference, request["tolerance"])
            else:
                answer.update(self.bench.run(built, request, lambda: self.say({"again": True})))
            answer["run_s"] = time.perf_counter() - started
        except Exception as error:  # TVM's errors have no type in common
            wrong = isinstance(error, WrongAnswerError)
            answer = {
                "state": "wrong_answer" if wrong else stage,
                "error": str(error) if wrong else self.told(error),
            }
        if answer["state"] != "ok" or not request.get("keep"):
            self.built.pop(key, None)
        return answer


def _compare(got: list[Any], wanted: list[Any], tolerance: float) -> float:
    """Return the largest difference of outputs, as a share of their range.

    Raises ``WrongAnswerError`` if it is larger than ``tolerance``.
    """
    import numpy as np

    if len(got) != len(wanted):
        raise ValueError(f"the program has {len(got)} outputs, the reference has {len(wanted)}")
    worst = 0.0
    for mine, theirs in zip(got, wanted):  # noqa: B905 - Python 3.8 knows no 'strict'
        if mine.shape != theirs.shape and not mine.size == theirs.size == 1:
            raise WrongAnswerError(f"an output has the shape {mine.shape}, not {theirs.shape}")
        mine, theirs = mine.ravel(), theirs.ravel()
        finite = np.isfinite(theirs)
        if not np.all(np.isfinite(mine) == finite):
            worst = float("inf")
        elif finite.any():
            # Only numbers are compared: a NaN or an infinity would hide all other differences.
            own, known = (values[finite].astype("float64") for values in (mine, theirs))
            scale = float(np.max(np.abs(known))) or 1.0
            worst = max(worst, float(np.max(np.abs(own - known))) / scale)
    if not worst <= tolerance:
        raise WrongAnswerError(f"outputs differ by {worst:.2g} of their range")
    return worst
