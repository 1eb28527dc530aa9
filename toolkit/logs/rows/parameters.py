"""Documents with one entry per configuration of parameters, with its measurement.

Parameters are categorical knobs. Entries are counted as lines.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, ClassVar

import orjson

from toolkit.logs.rows.base import (
    TOO_DEEP,
    BadLine,
    Reading,
    outcome_of,
    refuse_deep,
    seconds,
    word_code,
)
from toolkit.logs.rows.identity import KnobList, labels_of, learn_labels, make_sketch
from toolkit.logs.rows.json_text import TWICE, Repeated, decode_document, holds_repeated
from toolkit.logs.rows.results import REJECTED_BYTES, BlockResult, Rejected
from toolkit.logs.rows.rows import Rows
from toolkit.records import Sketch, Task, TrialState, canonical_json

CUT = "unfinished: the document is cut off or damaged in this entry"

Entry = tuple[dict[str, Any], TrialState, Any, "float | None", Any]
"""A configuration, its state, run times and elapsed time in seconds, timestamp."""


class ParameterDocument:
    """Reads the entries of a document into rows.

    A subclass finds the entries and the task in ``__init__``, and interprets an entry in ``entry``.

    Attributes
    ----------
    around
        The text before (a pattern) and after the entries, and whether each has a key.
    choices
        Values of parameters, if the document lists them.
    """

    around: ClassVar[tuple[bytes, bytes, bool]]
    task: Task
    entries: list[Any]
    choices: dict[str, list[Any]]

    def __init__(self, document: dict[str, Any], name: str, machine: str | None) -> None:
        self._version = str(document.get("schema_version") or "1.0.0")
        self._sketches: dict[tuple[str, ...], Sketch] = {}

    @classmethod
    def load(cls, data: bytes, name: str, machine: str | None) -> BlockResult:
        """Read a document; ``name`` is the workload's name if the document does not give it.

        If a document is damaged, the entries before the damage are read, and the rest is one
        rejected line. Raises ``BadLine`` if it is not a document of this format.
        """
        try:
            document, end = decode_document(data, *cls.around)
            if type(document) is Repeated:
                raise BadLine(TWICE)
            if not isinstance(document, dict):
                raise BadLine("the document is not a JSON object")
            result = cls(document, name, machine).read()
        except (RecursionError, UnicodeError, orjson.JSONEncodeError):
            raise BadLine(TOO_DEEP) from None
        if end < len(data):
            rest = data[end:].lstrip(b" \t\r\n,")
            rejected = Rejected(result.lines + 1, len(data) - len(rest), CUT, rest[:REJECTED_BYTES])
            result.rejected.append(rejected)
            result.lines += 1
            result.unfinished = True
        return result

    def entry(self, raw: Any) -> Entry:
        """Interpret an entry; raise ``BadLine`` if it is no record."""
        raise NotImplementedError

    def read(self) -> BlockResult:
        """Read all entries; the n-th is line n."""
        rows = Rows()
        count = len(self.entries)
        result = BlockResult(None, count, count)
        for number, raw in enumerate(self.entries, start=1):
            try:
                if holds_repeated(raw):
                    raise BadLine(TWICE)
                rows.add(self._reading(*self.entry(raw)), number)
            except (BadLine, RecursionError, orjson.JSONEncodeError) as error:
                reason = str(error) if isinstance(error, BadLine) else TOO_DEEP
                result.rejected.append(Rejected(number, 0, reason, _bytes(raw)))
        result.rows = rows.table()
        result.tasks = list(rows.tasks.values())
        result.sketches = list(self._sketches.values())
        return result

    def _reading(
        self,
        configuration: dict[str, Any],
        state: TrialState,
        costs: Any,
        elapsed: float | None,
        timestamp: Any,
    ) -> Reading:
        values = list(configuration.values())
        if not values:
            raise BadLine("the configuration is empty")
        codes = tuple(map(word_code, values))
        schedule = canonical_json(configuration)
        refuse_deep(schedule)
        run_times: tuple[float, ...] = ()
        if state is TrialState.OK:
            state, run_times = outcome_of(costs, None)
        return Reading(
            task=self.task,
            sketch=self._sketch(tuple(configuration), values),
            decisions=codes,
            schedule=schedule.decode(),
            format_version=self._version,
            state=state,
            run_times_s=run_times,
            elapsed_s=seconds(elapsed, "elapsed time"),
            timestamp=_timestamp(timestamp),
        )

    def _sketch(self, names: tuple[str, ...], values: list[Any]) -> Sketch:
        sketch = self._sketches.get(names)
        if sketch is None:
            knobs = KnobList()
            for name in names:
                known = self.choices.get(name)
                choices = None if known is None else tuple(map(word_code, known))
                knobs.add(name, "categorical", choices=choices, labels=labels_of(known or ()))
            skeleton = [[name, self.choices.get(name)] for name in names]
            sketch = make_sketch(self.task.format, ["parameters", *skeleton], knobs.knobs)
        words = [labels_of([value]) for value in values]
        if any(words):
            sketch = learn_labels(sketch, words)
        self._sketches[names] = sketch
        return sketch


def shallow(value: Any) -> Any:
    """Return the value; raise ``BadLine`` if it is nested too deeply."""
    refuse_deep(canonical_json(value))
    return value


def _bytes(raw: Any) -> bytes:
    try:
        return orjson.dumps(raw)[:REJECTED_BYTES]
    except orjson.JSONEncodeError:
        return b""


def _timestamp(value: Any) -> float | None:
    if not isinstance(value, str):
        return seconds(value, "timestamp")
    if value.endswith("Z"):  # Python 3.10 does not read it
        value = f"{value[:-1]}+00:00"
    try:
        told = datetime.fromisoformat(value)
        # Without a zone it is taken as UTC: an id must not depend on where a log is read.
        return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def scaled(values: Any, unit: float) -> Any:
    """Convert the numbers of a list to seconds; leave anything else to the caller, to refuse."""
    if not isinstance(values, list):
        return values
    return [v * unit if type(v) is float or type(v) is int else v for v in values]
