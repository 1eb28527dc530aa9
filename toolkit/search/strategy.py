"""What the strategies of this package share: options, bookkeeping, the order of construction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.errors import SearchError, did_you_mean
from toolkit.records import Candidate, Trial
from toolkit.search.base import DirectionScorer, Scorer, Space

# One call over a batch in place of a Python loop: replays spend most of their time on these.
candidate_id: Callable[[Candidate], str] = attrgetter("candidate_id")


class StrategyOptions(BaseModel):
    """Options of a strategy: the one table behind validation, scenarios and documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class BaseStrategy(ABC):
    """Ask and tell with the bookkeeping done: a subclass says only what to propose next.

    Parameters
    ----------
    space
        The candidates of one task.
    options
        ``Options`` of the class, a mapping that becomes one, or ``None`` for the defaults.
    rng
        The only source of randomness.
    scorer, direction_scorer
        Models trained on other tasks, for the strategies that need one.

    Attributes
    ----------
    source
        The paper or the file that the strategy follows.
    repeats
        Whether it may propose a candidate again (only tuners that do so in TVM).
    own_batches
        Whether it decides itself how many measurements it waits for, and so asks for fewer than
        the batch size allows. Every other strategy fills each batch while it has candidates, or
        to the end of its own round.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    Options: ClassVar[type[StrategyOptions]] = StrategyOptions
    repeats: bool = False
    own_batches: ClassVar[bool] = False
    needs_finite: ClassVar[bool] = False
    needs_scorer: ClassVar[bool] = False
    needs_direction_scorer: ClassVar[bool] = False

    def __init__(
        self,
        space: Space,
        options: StrategyOptions | Mapping[str, Any] | None = None,
        rng: np.random.Generator | None = None,
        *,
        scorer: Scorer | None = None,
        direction_scorer: DirectionScorer | None = None,
    ) -> None:
        self.space = space
        self.options = self._parse(options)
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self.scorer = scorer
        self.direction_scorer = direction_scorer
        self.seen: set[str] = set()
        if self.needs_finite and space.size is None:
            raise SearchError(
                f"{self.name!r} lists all candidates, and this space cannot be listed",
                cure="take a strategy that samples, such as 'random' or 'evolutionary'",
            )
        if self.needs_scorer and scorer is None:
            raise SearchError(
                f"{self.name!r} needs a throughput model trained on other tasks",
                cure="run 'toolkit train throughput' first, or name one with --model",
            )
        if self.needs_direction_scorer and direction_scorer is None:
            raise SearchError(
                f"{self.name!r} needs a mutation model trained on other tasks",
                cure="run 'toolkit train mutation' first, or name one with --model",
            )
        self.setup()

    @classmethod
    def _parse(cls, options: StrategyOptions | Mapping[str, Any] | None) -> StrategyOptions:
        if isinstance(options, cls.Options):
            return options
        given = options.model_dump() if isinstance(options, StrategyOptions) else options or {}
        try:
            return cls.Options.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            cure = (
                did_you_mean(field, cls.Options.model_fields)
                if first["type"] == "extra_forbidden"
                else f"given: {first.get('input')!r}"
            )
            raise SearchError(
                f"option {field!r} of strategy {cls.name!r}: {first['msg']}", cure=cure
            ) from None

    def setup(self) -> None:
        """Prepare; called once at the end of construction."""
        return

    @abstractmethod
    def propose(self, n: int) -> Iterable[Candidate]:
        """Return up to n candidates; what was proposed before is left out by ``ask``."""

    def learn(self, trials: Sequence[Trial]) -> None:
        """Take in measurements; nothing by default."""
        return

    def ask(self, n: int) -> list[Candidate]:
        """Propose up to n candidates, none proposed before; ``[]`` when exhausted."""
        fresh = list(self.propose(n))
        keys = list(map(candidate_id, fresh))
        seen = self.seen
        if not self.repeats and not (seen.isdisjoint(keys) and len(set(keys)) == len(keys)):
            first: dict[str, Candidate] = {}
            for key, candidate in zip(keys, fresh, strict=True):
                if key not in seen:
                    first.setdefault(key, candidate)
            fresh = list(first.values())
        seen.update(keys)
        return fresh

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn the measurements of what was asked, failures included."""
        self.learn(trials)


def sample_unseen(
    space: Space,
    rng: np.random.Generator,
    n: int,
    seen: set[str],
    *,
    sketch_id: str | None = None,
    attempts: int = 8,
) -> list[Candidate]:
    """Draw up to n distinct candidates outside ``seen``; fewer when the space gives no more.

    Oversamples a little more each time, so that a space that is nearly used up still yields its
    last candidates in a few attempts.
    """
    found: dict[str, Candidate] = {}
    size = n
    for _ in range(attempts):
        drawn = space.sample(rng, size, sketch_id)
        for candidate in drawn:
            if candidate.candidate_id not in seen and len(found) < n:
                found.setdefault(candidate.candidate_id, candidate)
        if len(found) >= n or (space.size is not None and len(drawn) < size):
            break
        size *= 2
    return list(found.values())


def throughput(trial: Trial) -> float:
    """Return 1 / latency of a trial in 1/s; 0 for a failure (higher is better)."""
    latency = trial.latency_s
    return 1.0 / latency if latency is not None and latency > 0 else 0.0


def throughputs(latencies_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / latency of many trials in 1/s; 0 for a failure, which is NaN (higher is better)."""
    out = np.zeros(len(latencies_s))
    np.divide(1.0, latencies_s, out=out, where=latencies_s > 0)
    return out
