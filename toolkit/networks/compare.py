"""Confirms a whole network: outputs against a reference, latency in blocks of fresh processes.

An arm is a compiled network, or the model file in another runtime. For the ratios, the arms are
measured in turns. Each arm has its own process, which is suspended while it waits
(``toolkit.live.measure.turns``). The compiled network is measured as two arms: the difference
between them is the smallest difference that counts. For the latencies, each network is measured
alone: in turns, the caches hold data of the other arms, and a small network takes half as long
again.
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
from toolkit.live.measure.machine import target_threads
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.progress import Step
from toolkit.records import TrialState, content_id

RUNTIMES = {"onnxruntime": ".onnx", "openvino": ".onnx", "torch": ".pt2"}
"""Runtimes that can be compared with, and the ending of the model files that each one reads."""

REFERENCES = ("onnxruntime", "torch")
"""Runtimes whose outputs are taken as correct."""

TOLERANCE = 1e-3
"""Outputs agree when they differ by at most this share of their range."""

ROUNDING = 2e-5
"""Difference, as a share of the range, between runtimes that compute in another order."""

ALONE_PROCESSES = 5
"""Fresh processes that run a network alone: a single one may be fast or slow by chance."""

ALONE_MS = 600
"""Milliseconds that each of these processes runs the network, and at least three runs."""

ALONE_SHARE = 0.15
"""Share of the seconds of a comparison for measuring each network alone, before it and again after
it."""

UNSTEADY = 1.1
"""Latencies of one network in several processes should differ by less than this factor."""


def arm(kind: str, path: Path | str, inputs: Sequence[Mapping[str, Any]]) -> Program:
    """Describe an arm: a compiled folder (``tvm``), or a model file in a runtime."""
    text = orjson.dumps({"kind": kind, "path": str(path), "inputs": list(inputs)}).decode()
    return Program(content_id(text), text, [], 0)


def installed_runtimes(model: Path | None) -> list[str]:
    """Return the ``RUNTIMES`` that read this model file and are installed."""
    reading = [name for name, ending in RUNTIMES.items() if model and model.suffix == ending]
    return [name for name in reading if importlib.util.find_spec(name)]


def network_protocol(threads: int) -> Protocol:
    """Return the protocol for whole networks: 9 turns a block, 60 ms each, long timeouts."""
    return Protocol(
        number=1,
        repeat=9,
        min_repeat_ms=60,
        threads=threads,
        build_timeout_s=300.0,
        run_timeout_s=120.0,
    )


def open_worker(target: str, protocol: Protocol, *, bound: bool = True) -> Device:
    """Open a process that loads and measures networks.

    ``bound``: its threads are bound to processors. Otherwise the system places them, as in a
    user's process.
    """
    settings: dict[str, Any] = {} if bound else {"bound": []}
    command = children.python("toolkit.networks.worker")
    return Device(target, protocol, command=command, settings=settings)


def check_outputs(
    mine: Program, reference: Program, target: str, protocol: Protocol, allowed: float = 0.0
) -> tuple[float | None, str | None]:
    """Compare a network's outputs with a reference's on one random input.

    Returns the largest difference, as a share of the range, and ``None``. If no comparison was
    possible: ``None`` and the reason. ``allowed`` is the error that the user allowed; 0: none.

    Raises
    ------
    LiveError
        When the outputs differ by more than ``allowed``, or by more than ``TOLERANCE``.
    """
    tolerance = min(allowed + ROUNDING, TOLERANCE) if allowed else TOLERANCE
    with open_worker(target, protocol) as device:
        known = device.set_reference(reference)
        if known.state is not TrialState.OK:
            return None, f"the reference does not run: {_why(known)}"
        answer = device.check(mine, tolerance=tolerance)
    if answer.state is TrialState.WRONG_ANSWER:
        raise LiveError(
            f"the outputs of the compiled network are wrong: {answer.error}",
            cure="tune it again with a smaller --tolerance and another --out"
            if allowed
            else "tune it again with another --out, and report the error with the model file",
        )
    if answer.state is TrialState.OK:
        return answer.difference, None
    return None, f"the compiled network does not run: {_why(answer)}"


def _why(result: MeasureResult) -> str:
    return result.error or result.state.value


def read_networks(
    tuned: Program, others: dict[str, Program], target: str, seconds: float, seed: int, step: Step
) -> tuple[Confirmation, dict[str, list[float]]]:
    """Measure a compiled network and others: in turns, and each alone before and after.

    Returns what ``compare`` does (empty without others) and, by arm, what ``read_alone`` does.
    """
    arms, protocol = {INCUMBENT: tuned, **others}, network_protocol(target_threads(target))
    share = ALONE_SHARE * seconds
    alone = read_alone(arms, target, protocol, share)
    step.advance(share)
    read = compare(tuned, others, target, seconds - 2.0 * share, seed, step)
    # Measured again, since a machine may be slow for half a minute.
    for name, medians in read_alone(arms, target, protocol, share, least=0).items():
        alone[name] += medians
    step.advance(share)
    return read, alone


def compare(
    tuned: Program, others: dict[str, Program], target: str, seconds: float, seed: int, step: Step
) -> Confirmation:
    """Measure a compiled network and others in turns, until the rules end it or time is up.

    The ratio of a judgement is the other network's latency over the compiled network's.
    """
    return confirm(
        tuned,
        others,
        target=target,
        protocol=network_protocol(target_threads(target)),
        rules=Rules(),
        seconds=seconds,
        rng=np.random.default_rng(seed),
        step=step,
        open_device=lambda one: open_worker(target, one),
    )


def read_alone(
    arms: Mapping[str, Program], target: str, protocol: Protocol, seconds: float, *, least: int = 1
) -> dict[str, list[float]]:
    """Measure each network alone; return the median run of every process, in seconds.

    A fresh process runs one network many times. The system places its threads. Each arm gets at
    least ``least`` processes. Then the arms get further processes in turn, until ``seconds`` have
    passed or each has ``ALONE_PROCESSES``. An arm that does not run has no medians.
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
    """Return the latency of a network: the lower quartile of ``medians``, in seconds.

    On a virtual machine, threads may wait 50 microseconds longer for each other in every loop, for
    seconds to a minute. Small networks then take 1.7 times as long. A median over processes would
    be one of the two speeds, by chance.
    """
    return sorted(medians)[(len(medians) - 1) // 4] if medians else None


def unsteady(medians: Sequence[float]) -> list[str]:
    """Return a warning if the medians of a network's processes (seconds) differ by ``UNSTEADY``."""
    if not medians or max(medians) < UNSTEADY * min(medians):
        return []
    low, high = 1e3 * min(medians), 1e3 * max(medians)
    return [
        f"the latency in fresh processes varies from {low:.3g} to {high:.3g} ms: the speed of the "
        "machine changes; the lower quartile is reported"
    ]


def comparison_row(
    judgement: Judgement, readings: Mapping[str, Sequence[float]], latency_s: float | None = None
) -> dict[str, Any]:
    """Return a row that compares another network with the compiled one (JSON-ready).

    ``latency_s`` is the other network's latency; if unknown, the geometric mean over blocks is
    taken. ``ratio`` is the compiled network's latency over the other's: below 1, the compiled
    network is faster. ``verdict`` is "faster" or "slower" if the interval excludes the difference
    between the compiled network and itself.
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
