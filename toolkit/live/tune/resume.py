"""Continue a search that was killed: known candidates are answered from the records.

Strategies are deterministic, so a restarted strategy asks for the same candidates. Each candidate
with a record is answered from it, at the record's clock time, and nothing is measured twice. If the
strategy asks for other candidates (another version, other models), it is told the remaining
records at once, and the search continues from there.
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
    """Return a database's trials of a space: each trial, its clock time, and its position.

    Clock times are seconds since the search began (0 if the record has none). ``as_searched``
    returns the search's run times, even of programs that were measured again later.
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
    """Return latency in seconds, trial and position of a space's records, fastest first."""
    timed = [
        (trial.latency_s, trial, position)
        for trial, _, position in recorded_trials(space, writer)
        if trial.latency_s is not None
    ]
    return sorted(timed, key=lambda each: each[0])


def keep_settings(path: Path, wanted: Mapping[str, Any], what: str) -> None:
    """Write the settings of a new run, or compare them with those of an earlier run.

    ``what`` names the content of the folder, for the error message.

    Raises
    ------
    LiveError
        When the file is damaged, or has other keys or values.
    """
    # Converted to JSON and back, so that tuples and paths compare equal to those in the file.
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
            f"the folder holds a {what} with another {', '.join(other)}",
            where=path.parent,
            cure="give another --out, or the same options to continue it",
        )


class RememberingOracle:
    """Answers from the records of an interrupted search first, then measures.

    ``known`` is the result of ``recorded_trials``. ``on_known`` is called for every trial that is
    answered from the records (progress).
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
        """Answer from records if possible, measure the rest; return one trial for each candidate.

        Records that were never asked for follow the trials of the first batch that is measured.
        """
        answers: dict[str, Trial] = {}
        for candidate in candidates:
            identity = candidate.candidate_id
            if identity in self._known:
                trial, at = self._known[identity]
                answers[identity] = trial
                self._waiting.pop(identity, None)
                # First the clock, because ``on_known`` reads it.
                self._clock.resume(max(self._clock.now(), at))
                self._tell(trial)
        fresh = [c for c in candidates if c.candidate_id not in answers]
        extra: list[Trial] = []
        new = self._oracle.measure(fresh) if fresh else []
        answers.update((trial.candidate.candidate_id, trial) for trial in new)
        # A refused candidate never has a record, so it does not show that the search differs.
        if any(trial.state is not TrialState.INSTANTIATION for trial in new):
            extra = list(self._waiting.values())
            self._waiting.clear()
            # They count as trials of this search, so ``on_known`` must see them.
            for trial in extra:
                self._tell(trial)
        return [answers[c.candidate_id] for c in candidates] + extra

    def _tell(self, trial: Trial) -> None:
        self._oracle.note(trial)
        self._on_known(trial)
