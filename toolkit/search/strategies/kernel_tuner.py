"""The strategies that Kernel Tuner ships, run by Kernel Tuner itself (extra ``[kernel-tuner]``).

Kernel Tuner (van Werkhoven 2019, doi 10.1016/j.future.2018.08.004; version 1.5) calls a cost
function, while a strategy here has ``ask`` and ``tell``. Its code therefore runs in a thread that
waits for each measurement. One side computes at a time, so that a run depends on its seed alone.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from typing import Any

from pydantic import Field, field_validator

from toolkit.errors import SearchError, ToolkitError, did_you_mean
from toolkit.records import Candidate, Trial
from toolkit.search.strategies.kernel_tuner_side import (
    AlgorithmRunner,
    Answers,
    Closed,
    parameters_of,
)
from toolkit.search.strategy import BaseStrategy, StrategyOptions, take

_GOODBYE_S = 5.0


class KernelTunerOptions(StrategyOptions):
    """Name and options of one of Kernel Tuner's strategies."""

    algorithm: str = Field(
        default="genetic_algorithm", description="a strategy by Kernel Tuner's name (`pso`, ...)"
    )
    strategy_options: dict[str, Any] = Field(
        default_factory=dict,
        description="options of the algorithm, checked by Kernel Tuner; `max_fevals` limits the "
        "measurements of one start (default: the whole space)",
    )

    @field_validator("strategy_options")
    @classmethod
    def _timeless(cls, given: dict[str, Any]) -> dict[str, Any]:
        if "time_limit" in given:
            raise ValueError("limit the time with the budget of the run, not with time_limit")
        return given


class KernelTuner(BaseStrategy):
    """A strategy of Kernel Tuner, run by Kernel Tuner's own code on a space that can be listed.

    Kernel Tuner's search space holds exactly the listed candidates. Each part of a knob is a
    parameter. A tile's outermost factor is not a parameter: it follows from the others. If there
    are several sketches, the sketch is a parameter too. Times are given in milliseconds, failures
    in Kernel Tuner's own form.

    When the algorithm asks for a candidate again, the answer comes from memory. When the algorithm
    stops, it is started again with another seed. The strategy ends when a whole start asks for
    nothing new. Algorithms that evaluate a population at once fill batches. The others ask for one
    candidate at a time, whatever the batch size.
    """

    name = "kernel-tuner"
    source = "Kernel Tuner 1.5 (van Werkhoven 2019), imported"
    Options = KernelTunerOptions
    options: KernelTunerOptions
    own_batches = True
    needs_finite = True

    def setup(self) -> None:
        o = self.options
        tune = _tune_of(o.algorithm)
        self._all = self.space.candidates()
        self._plan: list[int] = []
        self._asked: list[int] = []
        self._told: dict[str, Trial] = {}
        parameters = parameters_of(self.space)
        side = AlgorithmRunner(tune, o.algorithm, o.strategy_options, parameters, self.rng)
        self._dialogue = dialogue = _Dialogue(side)
        # The thread refers to the dialogue, not to the strategy: it ends when that is deleted.
        weakref.finalize(self, dialogue.close)

    def propose(self, n: int) -> Iterable[Candidate]:
        if not self._plan:
            asked = ((i, self._told.get(self._all[i].candidate_id)) for i in self._asked)
            answers, self._asked, self._told = dict(asked), [], {}
            self._plan = self._dialogue.turn(answers)
        batch = take(self._plan, n)
        self._asked += batch
        return [self._all[i] for i in batch]

    def learn(self, trials: Sequence[Trial]) -> None:
        self._told.update((trial.candidate.candidate_id, trial) for trial in trials)


def _tune_of(algorithm: str) -> Any:
    """Return the function ``tune`` of an algorithm; raise ``ToolkitError`` with the cure."""
    try:
        from kernel_tuner.interface import strategy_map
    except ImportError:
        raise ToolkitError(
            "Kernel Tuner is not installed", cure="pip install 'tvm-tuning-toolkit[kernel-tuner]'"
        ) from None
    if algorithm not in strategy_map:
        raise SearchError(
            f"Kernel Tuner has no strategy {algorithm!r}",
            cure=did_you_mean(algorithm, strategy_map),
        )
    try:
        # This import draws random numbers: during a search, the first run would differ.
        import scipy.stats.qmc  # noqa: F401

        return strategy_map[algorithm].tune
    except ImportError as error:
        raise SearchError(
            f"Kernel Tuner cannot import its strategy {algorithm!r}: {error}",
            cure="install the module that is named, or choose another algorithm",
        ) from None


class _Dialogue:
    """Two sides that take turns: the search in its thread, and the caller that measures."""

    def __init__(self, side: AlgorithmRunner) -> None:
        self._side: AlgorithmRunner | None = side
        self._thread: threading.Thread | None = None
        self._answers: SimpleQueue[Answers | None] = SimpleQueue()
        self._questions: SimpleQueue[list[int] | Exception] = SimpleQueue()

    def turn(self, answers: Answers) -> list[int]:
        """Pass on measurements; return which candidates to measure next, none at the end.

        Raises ``SearchError`` if Kernel Tuner raised an error.
        """
        if self._side is None:
            return []
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._side.search,
                args=(self._ask, self._questions.put),
                name="kernel-tuner",
                daemon=True,
            )
            self._thread.start()
        else:
            self._answers.put(answers)
        question = self._questions.get()
        if isinstance(question, list) and question:
            return question
        side = self._side
        self.close()
        if isinstance(question, Exception):
            raise side.refusal(question) from question
        return []

    def _ask(self, numbers: list[int]) -> Answers:
        self._questions.put(numbers)
        answers = self._answers.get()
        if answers is None:
            raise Closed
        return answers

    def close(self) -> None:
        """End the thread, if it is there, and wait for it."""
        thread, self._thread, self._side = self._thread, None, None
        if thread is not None:
            self._answers.put(None)
            # Garbage collection can call this in the thread itself.
            if thread is not threading.current_thread():
                thread.join(_GOODBYE_S)
