"""Rules of the confirmation: blocks, an A/A arm, intervals and verdicts.

A *block* measures every arm once, in random order, each in a fresh process with a fresh build.
Addresses, page colours, the clock and other programs on the machine differ from block to block.
The interval has to cover these differences. One arm repeats the incumbent under another name. The
ratio between the incumbent's two arms is the floor: no smaller difference is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from toolkit.results import Result

Verdict = Literal["better", "not better", "undecided"]

INCUMBENT = "incumbent"
TWIN = "incumbent again"

# Numbers of blocks at which the verdict is evaluated; the error rate is shared among them.
LOOKS = (6, 9, 13, 18, 25, 36, 50)

# Share of the blocks that is trimmed at each end: a few disturbed readings must not decide.
TRIMMED = 0.2


@dataclass(frozen=True, slots=True)
class Rules:
    """When a claim is accepted.

    ``error_rate`` is the chance of any false "better" in one validation, over all challengers and
    looks. A challenger is "not better" when it is proven to gain less than ``least_gain`` (a share
    of latency). ``looks`` are the block counts at which measuring may stop.
    """

    error_rate: float = 0.05
    least_gain: float = 0.01
    looks: tuple[int, ...] = LOOKS


@dataclass(frozen=True, repr=False)
class Judgement(Result):
    """The claim about one challenger.

    ``ratio`` is its latency over the incumbent's (below 1 is faster): the trimmed geometric mean
    over blocks. ``interval`` is its confidence interval after all corrections. ``floor`` is the
    ratio between the incumbent's two arms (1 or more).
    """

    challenger: str
    verdict: Verdict
    ratio: float
    interval: tuple[float, float]
    floor: float
    blocks: int
    confidence: float


def trimmed_interval(values: NDArray[np.float64], level: float) -> tuple[float, float, float]:
    """Return the trimmed mean and its two-sided confidence interval: ``(centre, low, high)``.

    Student's t with the winsorised variance (Tukey and McLaughlin 1963, as in Wilcox,
    "Introduction to Robust Estimation", section 4.3). Without trimming it is Student's interval.
    """
    count = len(values)
    if count < 2:
        return (float(values[0]) if count else math.nan), -math.inf, math.inf
    cut = int(TRIMMED * count)
    ordered = np.sort(values)
    kept = ordered[cut : count - cut]
    spread = np.std(np.clip(values, kept[0], kept[-1]), ddof=1)
    error = float(spread) / ((1.0 - 2.0 * cut / count) * math.sqrt(count))
    half = float(special.stdtrit(len(kept) - 1, 0.5 + level / 2)) * error
    centre = float(np.mean(kept))
    return centre, centre - half, centre + half


def judge(
    readings: Mapping[str, Sequence[float]], rules: Rules, challengers: Sequence[str]
) -> list[Judgement]:
    """Return one judgement for each challenger, from paired readings.

    ``readings`` are latencies in seconds by arm, one for each block, in the order of the blocks.
    They include the arms ``INCUMBENT`` and ``TWIN``. Each side of an interval has the error rate
    ``error_rate / (challengers * looks)``: a Bonferroni correction for picking the best of several
    challengers and for looking several times. Only one side can cause a false "better".

    "better": the whole interval is below 1 / floor. The floor is the measured ratio between the
    incumbent's two arms. "not better": the whole interval is above ``1 - least_gain``. Otherwise
    "undecided".
    """
    incumbent = np.log(np.asarray(readings[INCUMBENT], dtype=np.float64))
    twin = np.log(np.asarray(readings[TWIN], dtype=np.float64))
    tests = max(1, len(challengers)) * len(rules.looks)
    level = 1.0 - 2.0 * rules.error_rate / tests
    floor = abs(trimmed_interval(twin - incumbent, level)[0])
    judged = []
    for name in challengers:
        # Both arms of the incumbent are the same program: their mean is its better estimate.
        difference = np.log(np.asarray(readings[name], dtype=np.float64)) - (incumbent + twin) / 2
        centre, low, high = trimmed_interval(difference, level)
        verdict: Verdict = "undecided"
        if high < -floor:
            verdict = "better"
        elif low > math.log1p(-rules.least_gain):
            verdict = "not better"
        judged.append(
            Judgement(
                challenger=name,
                verdict=verdict,
                ratio=math.exp(centre),
                interval=(math.exp(low), math.exp(high)),
                floor=math.exp(floor),
                blocks=len(incumbent),
                confidence=level,
            )
        )
    return judged


def may_stop(judgements: Sequence[Judgement], blocks: int, rules: Rules) -> bool:
    """Return whether measuring can end: at a look, if more blocks cannot change the answer."""
    if blocks not in rules.looks:
        return False
    if blocks >= rules.looks[-1]:
        return True
    open_ratios = [j.ratio for j in judgements if j.verdict == "undecided"]
    better = [j.ratio for j in judgements if j.verdict == "better"]
    return not open_ratios or (bool(better) and min(better) <= min(open_ratios))


def overall(judgements: Sequence[Judgement]) -> Judgement | None:
    """Return the judgement to report: the fastest proven challenger, else the most promising."""
    better = [judgement for judgement in judgements if judgement.verdict == "better"]
    pool = better or [j for j in judgements if j.verdict == "undecided"] or list(judgements)
    return min(pool, key=lambda judgement: judgement.ratio, default=None)
