"""Confirms a whole network: outputs against a reference, latency in blocks of fresh processes.

An arm is a compiled network, or the model file in another runtime. Ratios come from arms that are
read in turns, each in a process of its own that is suspended while it waits
(``toolkit.live.measure.turns``). The compiled network stands twice among them: what it differs from
itself is the floor of every claim. A latency is read alone: in turns the caches hold what the other
arms left, and a small network takes half as long again.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit import children
from toolkit.errors import LiveError
from toolkit.live.confirm.rules import INCUMBENT, Judgement, Rules
from toolkit.live.confirm.verdict import Confirmation, confirm
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.progress import Step
from toolkit.records import TrialState, content_id

RUNTIMES = {"onnxruntime": ".onnx", "openvino": ".onnx", "torch": ".pt2"}
"""Runtimes, as arms to compare with, and the ending of the model files that each reads."""

REFERENCES = ("onnxruntime", "torch")
"""Those of them whose outputs are right."""

TOLERANCE = 1e-3
"""Outputs agree when they differ by no more than this share of their range."""

ROUNDING = 2e-5
"""Of it, what runtimes differ by that compute the same in another order."""

ALONE_PROCESSES = 5
"""Fresh processes that run a network alone: one of them may be fast or slow by chance."""

ALONE_MS = 600
"""Each of them runs it for so many milliseconds, and three times at least."""

ALONE_SHARE = 0.15
"""Of the seconds of a comparison, for reading each network alone, before it and again after."""

UNSTEADY = 1.1
"""Processes that read a network alone should differ by less than this factor."""


def arm(kind: str, path: Path | str, inputs: Sequence[Mapping[str, Any]]) -> Program:
    """Describe an arm: a compiled folder (``tvm``), or a model file in a runtime."""
    text = orjson.dumps({"kind": kind, "path": str(path), "inputs": list(inputs)}).decode()
    return Program(content_id(text), text, [], 0)


def installed_runtimes(model: Path | None) -> list[str]:
    """Those of ``RUNTIMES`` that read a model file and are installed here."""
    reading = [name for name, ending in RUNTIMES.items() if model and model.suffix == ending]
    return [name for name in reading if importlib.util.find_spec(name)]


def network_protocol(threads: int) -> Protocol:
    """How whole networks are read: 9 turns a block, 60 ms each; loading may take minutes."""
    return Protocol(
        number=1,
        repeat=9,
        min_repeat_ms=60,
        threads=threads,
        build_timeout_s=300.0,
        run_timeout_s=120.0,
    )


def open_worker(target: str, protocol: Protocol, *, bound: bool = True) -> Device:
    """Open a process that loads and reads networks.

    Threads are ``bound`` to processors, or left to the system as in a user's process.
    """
    settings: dict[str, Any] = {} if bound else {"bound": []}
    command = children.python("toolkit.networks.worker")
    return Device(target, protocol, command=command, settings=settings)


def check_outputs(
    mine: Program, reference: Program, target: str, protocol: Protocol, allowed: float = 0.0
) -> tuple[float | None, str | None]:
    """Compare a network's outputs with a reference's on one random input.

    Returns by how much they differ at most, as a share of their range, or ``None`` and why nothing
    could be compared. ``allowed`` is the error that its user allowed; 0: none was named.

    Raises
    ------
    LiveError
        When they differ by more than that, or than ``TOLERANCE``.
    """
    tolerance = min(allowed + ROUNDING, TOLERANCE) if allowed else TOLERANCE
    with open_worker(target, protocol) as device:
        known = device.set_reference(reference)
        if known.state is not TrialState.OK:
            return None, f"what they are compared with does not run: {_why(known)}"
        answer = device.check(mine, tolerance=tolerance)
    if answer.state is TrialState.WRONG_ANSWER:
        raise LiveError(
            f"the compiled network is wrong: {answer.error}",
            cure="tune it with a smaller --tolerance into another folder"
            if allowed
            else "tune it anew into another folder, and report it with the model",
        )
    if answer.state is TrialState.OK:
        return answer.difference, None
    return None, f"the compiled network: {_why(answer)}"


def _why(result: MeasureResult) -> str:
    return result.error or result.state.value


def read_networks(
    tuned: Program,
    others: dict[str, Program],
    target: str,
    protocol: Protocol,
    seconds: float,
    seed: int,
    step: Step,
) -> tuple[Confirmation, dict[str, list[float]]]:
    """Read a compiled network and others: in turns, and each alone before and after.

    Returns the confirmation, in which a judgement's ratio is the other's latency over the compiled
    network's (empty without others), and by arm what ``read_alone`` returns.
    """
    arms = {INCUMBENT: tuned, **others}
    share = ALONE_SHARE * seconds
    alone = read_alone(arms, target, protocol, share)
    step.advance(share)
    read = Confirmation()
    if others:
        read = compare(tuned, others, target, protocol, seconds - 2.0 * share, seed, step)
    # Again: a machine may be slow for half a minute.
    for name, medians in read_alone(arms, target, protocol, share, least=0).items():
        alone[name] += medians
    step.advance(share)
    return read, alone


def compare(
    tuned: Program,
    others: dict[str, Program],
    target: str,
    protocol: Protocol,
    seconds: float,
    seed: int,
    step: Step,
) -> Confirmation:
    """Read a compiled network beside others until the rules let it end or time is up.

    A judgement's ratio is the other's latency over the compiled network's.
    """
    return confirm(
        tuned,
        others,
        target=target,
        protocol=protocol,
        rules=Rules(),
        seconds=seconds,
        rng=np.random.default_rng(seed),
        step=step,
        open_device=lambda one: open_worker(target, one),
    )


def read_alone(
    arms: Mapping[str, Program], target: str, protocol: Protocol, seconds: float, *, least: int = 1
) -> dict[str, list[float]]:
    """Read each network alone: the median run of every process, in seconds.

    A fresh process runs one network over and over, its threads as the system places them. Every arm
    has ``least`` processes, and more in turn until ``seconds`` have passed, ``ALONE_PROCESSES`` at
    most. An arm that does not run has none.
    """
    every_run = replace(protocol, repeat=2, min_repeat_ms=ALONE_MS)
    found: dict[str, list[float]] = {name: [] for name in arms}
    begun = time.perf_counter()
    for turn in range(ALONE_PROCESSES):
        for name, program in arms.items():
            if turn >= least and time.perf_counter() - begun > seconds:
                break
            with open_worker(target, every_run, bound=False) as device:
                device.build(program)
                read = device.measure(program)
            if read.state is TrialState.OK:
                found[name].append(statistics.median(read.run_times_s))
    return found


def alone_s(medians: Sequence[float]) -> float | None:
    """Latency of a network whose processes read ``medians``: their lower quartile, in seconds.

    On a virtual machine threads may wait 50 microseconds longer for each other, a loop, for seconds
    to a minute: small networks then take 1.7 times as long, and a median over processes is one of
    two speeds, by chance.
    """
    return sorted(medians)[(len(medians) - 1) // 4] if medians else None


def unsteady(medians: Sequence[float]) -> list[str]:
    """A warning where the medians of a network's processes (seconds) differ by ``UNSTEADY``."""
    if not medians or max(medians) < UNSTEADY * min(medians):
        return []
    low, high = 1e3 * min(medians), 1e3 * max(medians)
    return [
        f"fresh processes read {low:.3g} to {high:.3g} ms: the machine's speed changes; "
        "the latency is their lower quartile"
    ]


def comparison_row(
    judgement: Judgement, readings: Mapping[str, Sequence[float]], latency_s: float | None = None
) -> dict[str, Any]:
    """One other network beside the compiled one (JSON-ready).

    Its latency is ``latency_s``, or where that is not known the geometric mean over blocks.
    ``ratio`` is the compiled network's latency over the other's: below 1 it is faster. ``verdict``
    is "faster" or "slower" where the interval excludes what the network differs from itself.
    """
    low, high = judgement.interval
    known = 0.0 < low <= high < float("inf")
    verdict = "not told apart"
    if known and low > judgement.floor:
        verdict = "faster"
    elif known and high < 1.0 / judgement.floor:
        verdict = "slower"
    in_turns_s = float(np.exp(np.mean(np.log(readings[judgement.challenger]))))
    return {
        "against": judgement.challenger,
        "latency_s": in_turns_s if latency_s is None else latency_s,
        "ratio": 1.0 / judgement.ratio,
        "interval": [1.0 / high, 1.0 / low] if known else None,
        "verdict": verdict,
        "blocks": judgement.blocks,
    }
