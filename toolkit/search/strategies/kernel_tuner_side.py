"""A space and its measurements in Kernel Tuner's form, and the runner of its algorithms.

The other half of ``kernel_tuner.py``: the two take turns.
"""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from toolkit.errors import SearchError
from toolkit.records import Knob, Trial, TrialState
from toolkit.search.base import Indexed, Space

Config = tuple[Any, ...]
"""A value for each parameter."""
Answers = Mapping[int, Trial | None]
"""Measurements by the candidate's number; ``None`` where there is none."""
Ask = Callable[[list[int]], Answers]

# Kernel Tuner's strategies use the global random generators: only one may compute at a time.
_GENERATORS = threading.Lock()
# A start ends after so many times the space's size of answers from memory in a row.
_REPEATS = 10


class Closed(BaseException):
    """The strategy is gone. Not an ``Exception``, so that Kernel Tuner cannot catch it."""


class _Word(str):
    """A word whose hash is the same in all processes: Kernel Tuner iterates over sets of values."""

    __slots__ = ()

    def __hash__(self) -> int:
        return crc32(self.encode())


class Parameters(NamedTuple):
    """A space in Kernel Tuner's form: all ``values`` of each parameter.

    ``number_of`` is the candidate of each configuration, ``listed`` each candidate's parameters by
    name. Both are in the order in which Kernel Tuner lists configurations.
    """

    values: dict[str, list[Any]]
    number_of: dict[Config, int]
    listed: dict[int, dict[str, Any]]


def parameters_of(space: Space) -> Parameters:
    """Return a space's parameters, made once for all runs on an indexed space."""
    if not isinstance(space, Indexed):
        return _made(space)
    return space.graph.keep("kernel-tuner", partial(_made, space))


def _made(space: Space) -> Parameters:
    places = {sketch.sketch_id: number for number, sketch in enumerate(space.sketches)}
    knobs: dict[tuple[str, int], list[Knob]] = {}
    columns: dict[str, list[tuple[tuple[str, int], int]]] = {key: [] for key in places}
    for sketch in space.sketches:
        for knob in sketch.knobs:
            for part in range(knob.free.start, knob.free.stop):
                key = knob.name, part - knob.offset
                knobs.setdefault(key, []).append(knob)
                columns[sketch.sketch_id].append((key, part))
    candidates = space.candidates()
    rows = [
        {key: candidate.decisions[part] for key, part in columns[candidate.sketch_id]}
        for candidate in candidates
    ]
    orders = [_ordered({row[key] for row in rows if key in row}, of) for key, of in knobs.items()]
    # A parameter that a sketch lacks has its lowest value there: the sketch makes rows differ.
    codes = [
        [places[candidate.sketch_id]]
        + [order.get(row.get(key, -1), 0) for key, order in zip(knobs, orders, strict=True)]
        for candidate, row in zip(candidates, rows, strict=True)
    ]
    words = [list(range(len(places)))]
    words += [_words(order, of) for order, of in zip(orders, knobs.values(), strict=True)]
    if len(places) == 1 and knobs:
        codes, words = [code[1:] for code in codes], words[1:]
    # In the order of their values: the order of a record must not help.
    number_of = {
        tuple(word[code] for word, code in zip(words, codes[i], strict=True)): i
        for i in sorted(range(len(codes)), key=codes.__getitem__)
    }
    # New names: Kernel Tuner forbids some ("time"), and gives others a meaning.
    values = {f"p{number}": word for number, word in enumerate(words)}
    listed = {i: dict(zip(values, config, strict=True)) for config, i in number_of.items()}
    return Parameters(values, number_of, listed)


def _ordered(values: set[int], knobs: Sequence[Knob]) -> dict[int, int]:
    """Rank of each value: as the knob lists them, else ascending."""
    listed = knobs[0].choices if knobs[0].width == 1 else None
    place = {value: number for number, value in enumerate(listed or ())}
    order = sorted(values, key=lambda value: (place.get(value, len(place)), value))
    return {value: rank for rank, value in enumerate(order)}


def _words(order: dict[int, int], knobs: Sequence[Knob]) -> list[Any]:
    """Values by rank: numbers, and the words that codes stand for."""
    labels = {code: _Word(word) for knob in knobs for code, word in knob.labels}
    words: list[Any] = [labels.get(value, value) for value in order]
    return words if len(set(words)) == len(words) else list(order)


class AlgorithmRunner:
    """Starts one of Kernel Tuner's algorithms repeatedly, and is the runner that it calls.

    ``tune`` is the algorithm's own function; every start takes a seed from ``rng``.
    """

    def __init__(
        self,
        tune: Any,
        algorithm: str,
        strategy_options: Mapping[str, Any],
        parameters: Parameters,
        rng: np.random.Generator,
    ) -> None:
        from kernel_tuner.runners.simulation import SimulationDevice

        self._tune, self._algorithm, self._options = tune, algorithm, strategy_options
        self._parameters, self._rng = parameters, rng
        self.dev = SimulationDevice(10**9, {"device_name": "record"}, True)
        self._states: Any = random.getstate(), np.random.get_state()  # noqa: NPY002
        self._results: dict[Config, dict[str, Any]] = {}
        self._fresh = random.Random()
        self._visited: set[Config] = set()
        self._repeats = 0

    def search(self, ask: Ask, tell: Callable[[list[int] | Exception], None]) -> None:
        """Search until a start asks for nothing new; tell the end (an empty list) or the error."""
        end: list[int] | Exception = []
        self._ask = ask
        try:
            with ExitStack() as self._turn:
                self._turn.enter_context(self._generators())
                before = -1
                while before < len(self._results) < len(self._parameters.number_of):
                    before = len(self._results)
                    self._start()
        except Closed:
            return
        except Exception as error:
            end = error
        tell(end)

    @contextmanager
    def _generators(self) -> Iterator[None]:
        """Replace the global random generators by own ones inside the block."""
        with _GENERATORS, warnings.catch_warnings(), np.errstate(all="ignore"):
            # The value of a failure overflows where a method of SciPy takes a difference.
            warnings.simplefilter("ignore")
            theirs, make = _swap(self._states), np.random.default_rng
            # Latin hypercubes are drawn from a new generator: unseeded, two runs would differ.
            vars(np.random)["default_rng"] = lambda seed=None: make(
                self._fresh.getrandbits(64) if seed is None else seed
            )
            try:
                yield
            finally:
                vars(np.random)["default_rng"] = make
                self._states = _swap(theirs)

    def _start(self) -> None:
        """Let the algorithm run once, as ``kernel_tuner.tune_kernel`` does."""
        from kernel_tuner.interface import Options
        from kernel_tuner.searchspace import Searchspace
        from kernel_tuner.util import StopCriterionReached, TuningBudget

        values, number_of, listed = self._parameters
        own = Options(deepcopy(dict(self._options)))
        most = min(own.get("max_fevals", len(number_of)), len(number_of))
        seed = int(self._rng.integers(2**32))
        tuning = Options(
            strategy=self._algorithm,
            strategy_options=own,
            tune_params={name: list(known) for name, known in values.items()},
            objective=["time"],
            objective_higher_is_better=[False],
            budget=TuningBudget(None, most),
            seed=seed,
            verbose=False,
            restrictions=None,
            restrictions_unmodified=None,
            metrics=None,
            simulation_mode=False,
        )
        if "max_fevals" in own:
            tuning["max_fevals"] = own["max_fevals"]
        self._fresh.seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        self._visited, self._repeats = set(), 0
        with suppress(StopCriterionReached):
            searchspace = Searchspace(
                None, None, None, from_cache={"tune_params": tuning.tune_params, "cache": listed}
            )
            self._tune(searchspace, self, tuning)

    def run(self, configurations: Iterable[Sequence[Any]], tuning: Any) -> list[Any]:
        """Measure configurations for Kernel Tuner; ``None`` for those beyond its budget.

        As in its simulation mode, a configuration counts once per start as an evaluation.
        """
        from kernel_tuner.util import InvalidConfig, StopCriterionReached

        number_of = self._parameters.number_of
        wanted: dict[int, Config] = {}
        given: list[Config | None] = []
        for each in configurations:
            config = None if tuning.budget.is_done() else tuple(each)
            given.append(config)
            if config in number_of and config not in self._visited:
                self._visited.add(config)
                tuning.budget.add_evaluations(1)
                if config not in self._results:
                    wanted[number_of[config]] = config
        self._repeats = 0 if wanted else self._repeats + len(given)
        if self._repeats > _REPEATS * len(number_of):
            raise StopCriterionReached("nothing new for a long time")
        if wanted:
            self._measure(wanted)
        unlisted = {"time": InvalidConfig(), "__error__": InvalidConfig()}
        return [
            None if config is None else dict(self._results.get(config, unlisted))
            for config in given
        ]

    def _measure(self, wanted: Mapping[int, Config]) -> None:
        """Wait for measurements, in the order in which they are wanted."""
        self._turn.close()
        answers = self._ask(list(wanted))
        self._turn.enter_context(self._generators())
        for number, config in wanted.items():
            parameters = self._parameters.listed[number]
            self._results[config] = {**parameters, **_result(answers.get(number))}

    def refusal(self, error: Exception) -> SearchError:
        """Return an error of Kernel Tuner as a ``SearchError``."""
        cure = "check its strategy_options (is a population larger than the space?)"
        if isinstance(error, ImportError):
            cure = "install the module that is named"
        return SearchError(
            f"Kernel Tuner's {self._algorithm!r} stopped with an error on "
            f"{len(self._parameters.number_of)} candidates: {error or type(error).__name__}",
            cure=f"{cure}, or choose another algorithm",
        )

    def add_strategy_time(self, seconds: float) -> None:
        """Ignore the time that the algorithm took."""


def _swap(states: Any) -> Any:
    """Set the states of the process's generators; return those that they had."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    return before


def _result(trial: Trial | None) -> dict[str, Any]:
    """Return a measurement in Kernel Tuner's form: milliseconds, or the kind of failure."""
    from kernel_tuner import util

    if trial is not None and trial.latency_s is not None:
        return {"time": 1e3 * trial.latency_s, "times": [1e3 * t for t in trial.run_times_s]}
    state = TrialState.UNKNOWN if trial is None else trial.state
    if state is TrialState.INSTANTIATION:
        failure = util.InvalidConfig()
    elif state in (TrialState.COMPILE, TrialState.BUILD_TIMEOUT):
        failure = util.CompilationFailedConfig()
    else:
        failure = util.RuntimeFailedConfig()
    return {"time": failure, "__error__": failure}
