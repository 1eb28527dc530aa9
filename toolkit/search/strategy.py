"""What the strategies of this package share: options, bookkeeping, the order of construction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from toolkit.errors import SearchError, nearest, plain_words
from toolkit.records import Candidate, Trial
from toolkit.search.base import DirectionScorer, Scorer, Space

# One call over a batch in place of a Python loop: replays spend most of their time on these.
candidate_id: Callable[[Candidate], str] = attrgetter("candidate_id")

Share = Annotated[float, Field(ge=0, le=1)]


class StrategyOptions(BaseModel):
    """Options of a strategy: the one table behind validation, scenarios and documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


OptionsT = TypeVar("OptionsT", bound=StrategyOptions)
T = TypeVar("T")


def parse_options(
    plugin: str, model: type[OptionsT], given: StrategyOptions | Mapping[str, Any] | None
) -> OptionsT:
    """Check options of a plug-in (``"strategy 'beam'"``); raise ``SearchError`` with the cure."""
    if isinstance(given, model):
        return given
    if isinstance(given, StrategyOptions):
        given = given.model_dump(exclude_unset=True)
    try:
        return model.model_validate(dict(given or {}))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        cure = nearest(model, first["loc"]) if first["type"] == "extra_forbidden" else None
        raise SearchError(
            f"option {field!r} of {plugin}: {plain_words(first)}", cure=cure
        ) from None


class BaseStrategy(ABC):
    """Base of all strategies, with the bookkeeping done: a subclass says what to propose next.

    ``options`` are ``Options`` of the class, a mapping that becomes one, or ``None`` for the
    defaults. ``rng`` is the only source of randomness. ``scorer`` and ``direction_scorer`` are
    models trained on other tasks, for the strategies that need one. ``finite``: the space can be
    listed.

    A class says in ``source`` which paper or file it follows; in ``repeats`` whether it may propose
    a candidate again (only tuners that do so in TVM); and in ``own_batches`` whether it decides
    itself how many measurements it waits for, and so asks for fewer than the batch size allows.
    Every other strategy fills each batch while it has candidates, or to the end of its own round.
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
        self.finite = space.size is not None
        self.options = parse_options(f"strategy {self.name!r}", self.Options, options)
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self.scorer = scorer
        self.direction_scorer = direction_scorer
        self.seen: set[str] = set()
        if self.needs_finite and not self.finite:
            raise SearchError(
                f"strategy {self.name!r} needs a finite space, and this space cannot be listed",
                cure="use a strategy that samples, such as 'random' or 'evolutionary'",
            )
        if self.needs_scorer:
            self.require(scorer, "throughput")
        if self.needs_direction_scorer:
            self.require(direction_scorer, "mutation")
        self.setup()

    @classmethod
    def models_for(cls, options: Any) -> set[str]:
        """Return the kinds of models that the strategy needs with these ``Options``."""
        needs = {"throughput": cls.needs_scorer, "mutation": cls.needs_direction_scorer}
        return {kind for kind, needed in needs.items() if needed}

    def require(self, model: T | None, kind: str) -> T:
        """Return a model that the strategy needs; raise ``SearchError`` if it is ``None``."""
        if model is None:
            raise SearchError(
                f"strategy {self.name!r} needs a {kind} model trained on other tasks",
                cure=f"run 'toolkit train {kind}' first, or name a trained model with --model",
            )
        return model

    def setup(self) -> None:
        """Prepare; called once at the end of construction."""
        return

    @abstractmethod
    def propose(self, n: int) -> Iterable[Candidate]:
        """Return up to n candidates; ``ask`` leaves out those that were proposed before."""

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
        """Take the measurements of the proposed candidates, failures included."""
        self.learn(trials)


def preset(
    base: type[BaseStrategy],
    name: str,
    text: str,
    source: str,
    *,
    flags: Mapping[str, bool] | None = None,
    **defaults: Any,
) -> type[BaseStrategy]:
    """Derive a strategy from another one: own name, text, source and defaults, no code.

    ``flags`` set what it needs if that differs (``needs_scorer``, ...).
    """
    fields: dict[str, Any] = {}
    for key, value in defaults.items():
        field = copy(base.Options.model_fields[key])
        field.default = value
        fields[key] = (field.annotation, field)
    title = "".join(word.title() for word in name.split("-"))
    members = {
        "__doc__": text,
        "__module__": base.__module__,
        "name": name,
        "source": source,
        "Options": create_model(f"{title}Options", __base__=base.Options, **fields),
        **(flags or {}),
    }
    return type(title, (base,), members)


def take(plan: list[T], n: int) -> list[T]:
    """Remove the first n of a plan and return them."""
    batch = plan[:n]
    del plan[:n]
    return batch


def shuffled(rng: np.random.Generator, items: Sequence[T]) -> list[T]:
    """Return items in random order: the order of a record must not help a strategy."""
    return [items[i] for i in rng.permutation(len(items)).tolist()]


def sample_unseen(
    space: Space, rng: np.random.Generator, n: int, seen: set[str]
) -> list[Candidate]:
    """Draw up to n distinct candidates outside ``seen``; fewer when the space gives no more.

    Doubles the sample each time, so that a nearly exhausted space still yields its last
    candidates in a few attempts (at most 8).
    """
    found: dict[str, Candidate] = {}
    size = n
    for _ in range(8):
        drawn = space.sample(rng, size)
        for candidate in drawn:
            if candidate.candidate_id not in seen and len(found) < n:
                found.setdefault(candidate.candidate_id, candidate)
        if len(found) >= n or (space.size is not None and len(drawn) < size):
            break
        size *= 2
    return list(found.values())


class Samples:
    """Samples of a space, in an order that does not depend on how many are taken at a time.

    For a space that cannot be listed. A search that continues with a larger budget then asks for
    the same candidates first, and those are answered from the records.
    """

    DRAWN = 64
    """Number of candidates sampled at a time."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._drawn: list[Candidate] = []

    def take(self, n: int, seen: set[str]) -> list[Candidate]:
        """Give the next n outside ``seen``; fewer when the space gives no more."""
        self._drawn = [c for c in self._drawn if c.candidate_id not in seen]
        while len(self._drawn) < n:
            known = seen.union(map(candidate_id, self._drawn))
            fresh = sample_unseen(self._space, self._rng, self.DRAWN, known)
            if not fresh:
                break
            self._drawn += fresh
        return take(self._drawn, n)


def throughput(trial: Trial) -> float:
    """Return 1 / latency of a trial in 1/s; 0 for a failure (higher is better)."""
    return 1.0 / trial.latency_s if trial.latency_s and trial.latency_s > 0 else 0.0


def throughputs(latencies_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / latency of many trials in 1/s; 0 for a failure, which is NaN (higher is better)."""
    out = np.zeros(len(latencies_s))
    np.divide(1.0, latencies_s, out=out, where=latencies_s > 0)
    return out
