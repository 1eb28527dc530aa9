"""Goes on with a search that was killed: what was measured is answered from its records.

Strategies are deterministic, so one that is started again asks for the same candidates; each that
has a record is answered from it, at the clock time that the record has, and nothing is measured
twice. Where the strategy asks for something else after all (another version, other models), the
records that it has not asked for are told to it at once, and the search goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from toolkit.atomic import write_atomically
from toolkit.errors import LiveError
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import Candidate, Trial, TrialState
from toolkit.search.runner import WallClock


def recorded_trials(
    space: MetaScheduleSpace, writer: DatabaseWriter, *, as_searched: bool = False
) -> list[tuple[Trial, float, int]]:
    """What a database holds of a space: trials in order, their clock times, their positions.

    Clock times are seconds since the search began (0 where the record has none). ``as_searched``
    gives run times as the search read them, also of programs that were read again since.
    """
    index = writer.workload_index(space.design.module)
    found = []
    for position, (record, line) in enumerate(zip(writer.records, writer.trials, strict=True)):
        if record[0] != index:
            continue
        candidate = space.adopt(record[1][0], proven=True)
        if candidate is None:
            continue
        state = TrialState(line["state"])
        times = line.get("searched_s", record[1][1]) if as_searched else record[1][1]
        trial = Trial(
            candidate=candidate,
            state=state,
            run_times_s=tuple(times) if state is TrialState.OK else (),
            elapsed_s=float(line["elapsed_s"]),
            timestamp=line["timestamp"],
            error=line["error"],
        )
        found.append((trial, float(line.get("clock_s") or 0.0), position))
    return found


def ranked_trials(
    space: MetaScheduleSpace, writer: DatabaseWriter
) -> list[tuple[float, Trial, int]]:
    """Latency in seconds, trial and position of what a database has of a space, fastest first."""
    timed = [
        (trial.latency_s, trial, position)
        for trial, _, position in recorded_trials(space, writer)
        if trial.latency_s is not None
    ]
    return sorted(timed, key=lambda each: each[0])


def keep_settings(path: Path, wanted: Mapping[str, Any], what: str) -> None:
    """Write the settings of a new run, or refuse to go on with other ones.

    ``what`` is what the folder of ``path`` holds, for the message.

    Raises
    ------
    LiveError
        When the file holds other keys, or other values.
    """
    # Read back, so that tuples and paths compare as the file has them.
    plain = orjson.loads(orjson.dumps(wanted))
    if not path.is_file():
        write_atomically(path, orjson.dumps(plain, option=orjson.OPT_INDENT_2))
        return
    try:
        before = dict(orjson.loads(path.read_bytes()))
    except (TypeError, ValueError):
        raise LiveError("damaged: no JSON object", where=path, cure="give another --out") from None
    other = [key for key in {**plain, **before} if before.get(key) != plain.get(key)]
    if other:
        raise LiveError(
            f"it holds a {what} with another {', '.join(other)}",
            where=path.parent,
            cure="give another --out, or the same options to go on with it",
        )


class RememberingOracle:
    """Answers from the records of an interrupted search, then measures.

    Parameters
    ----------
    known
        What ``recorded_trials`` gives.
    on_known
        Called with every trial that is answered from the records (progress).
    """

    def __init__(
        self,
        oracle: DeviceOracle,
        known: Sequence[tuple[Trial, float, int]],
        clock: WallClock,
        on_known: Callable[[Trial], object],
    ) -> None:
        self._oracle = oracle
        self._on_known = on_known
        self._clock = clock
        self._known = {trial.candidate.candidate_id: (trial, at) for trial, at, _ in known}
        self._waiting = {identity: trial for identity, (trial, _) in self._known.items()}

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Answer from the records where they can, measure the rest; one trial each.

        Records that nobody asked for come behind the first candidates that have none.
        """
        answers: dict[str, Trial] = {}
        for candidate in candidates:
            identity = candidate.candidate_id
            if identity in self._known:
                trial, at = self._known[identity]
                answers[identity] = trial
                self._waiting.pop(identity, None)
                # The clock first: whoever is told of the trial is told when it was.
                self._clock.resume(max(self._clock.now(), at))
                self._tell(trial)
        fresh = [c for c in candidates if c.candidate_id not in answers]
        extra: list[Trial] = []
        new = self._oracle.measure(fresh) if fresh else []
        answers.update((trial.candidate.candidate_id, trial) for trial in new)
        # Refused candidates have no record: that one is asked for says nothing.
        if any(trial.state is not TrialState.INSTANTIATION for trial in new):
            extra = list(self._waiting.values())
            self._waiting.clear()
            # They count as trials of this search, so whoever counts is told of them, too.
            for trial in extra:
                self._tell(trial)
        return [answers[c.candidate_id] for c in candidates] + extra

    def _tell(self, trial: Trial) -> None:
        self._oracle.note(trial)
        self._on_known(trial)
