"""Measures recorded candidates anew on this machine, for runs over a recorded space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson

from toolkit.live.measure.device import Device
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import Candidate, Trial, TrialState
from toolkit.replay.record.space import RecordedSpace


class KeptBuilds:
    """An engine that compiles each program once, into a file, and measures it afresh every time.

    Another process than the measuring one compiles; the two are never at work together. Each
    reading loads the file anew. A program that does not compile is remembered as well, with the
    state that it had.

    Parameters
    ----------
    folder
        Where compiled programs lie between runs, one or two files each.
    """

    def __init__(self, target: str, protocol: Protocol, folder: Path) -> None:
        self.protocol = protocol
        self.builds = 0
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._builder = Device(target, protocol)
        # It builds nothing itself; whoever wants another process asks for one ('renew').
        self._reader = Device(target, protocol, max_builds=10**9)

    def __enter__(self) -> KeptBuilds:
        return self

    def __exit__(self, *raised: object) -> None:
        self._builder.close()
        self._reader.close()

    def renew(self) -> None:
        """Measure in another process from here on: addresses and pages are drawn anew."""
        self._reader.stop()

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None]
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Measure one after the other, in full (nothing is dropped after a first reading)."""
        for position, program in enumerate(programs):
            built = self._built(program)
            if isinstance(built, MeasureResult):
                yield position, built
                continue
            reading = self._reader.run_artifact(program, str(built))
            if built.suffix == ".tar" and reading.state is TrialState.OK:
                # Its linked form is whole: a run that was killed may leave half of one.
                built.unlink()
            yield position, reading

    def _built(self, program: Program) -> Path | MeasureResult:
        archive = self._folder / f"{program.key}.tar"
        # What TVM's 'load_module' links an archive into, beside it.
        linked, failed = archive.with_suffix(".tar.so"), archive.with_suffix(".failed")
        if failed.is_file():
            state, error = orjson.loads(failed.read_bytes())
            return MeasureResult(TrialState(state), error=error)
        if archive.is_file():
            return archive
        if not linked.is_file():
            temporary = archive.with_suffix(".part.tar")
            reading = self._builder.export(program, str(temporary))
            self.builds += 1
            if reading.state is not TrialState.OK:
                failed.write_bytes(orjson.dumps([reading.state.value, reading.error]))
                return reading
            temporary.replace(archive)
            return archive
        return linked


class RebuiltOracle:
    """The device in the place of a record: measures candidates of a recorded space now.

    The candidate's program is made from its recorded schedule. A proposal outside the record is a
    miss, as in a replay (``RecordedOracle`` with ``skip``), so that a strategy meets the same
    space there and here.
    """

    def __init__(
        self,
        recorded: RecordedSpace,
        schedules: dict[str, str],
        live: MetaScheduleSpace,
        engine: KeptBuilds,
    ) -> None:
        self.recorded = recorded
        adopted = {
            live.adopt(schedules[c.candidate_id], proven=True) for c in recorded.candidates()
        }
        # The live space gives programs the ids that they have in a dataset.
        if adopted != set(recorded.candidates()):
            raise RuntimeError(f"task {recorded.task.task_id}: not the candidates of this record")
        self._device = DeviceOracle(live, engine)

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Build, where it is not built, and run; one trial each, without the misses."""
        numbers = self.recorded.numbers_of(candidates)
        inside = [c for c, number in zip(candidates, numbers, strict=True) if number >= 0]
        return self._device.measure(inside)
