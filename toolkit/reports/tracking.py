"""An MLflow run that follows work: a ``Progress`` that sends figures from its own thread.

The work does not wait for MLflow. Unsent figures are kept and sent later; those that are still
unsent at the end are reported. The toolkit's own files do not depend on MLflow.
"""

from __future__ import annotations

import getpass
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from toolkit.atomic import write_atomically
from toolkit.errors import first_line
from toolkit.progress import SILENT, Progress, Step, Values
from toolkit.reports.tracking_names import clean, figures, flat, short
from toolkit.reports.tracking_store import TrackingStore, check_answer, open_store
from toolkit.results import plain
from toolkit.show import plural
from toolkit.workspace import RUN_FILE

SEND_S = 5.0
"""Seconds between two sends: each takes some time of a machine that may be measuring."""

AGAIN_S = 60.0
"""Longest wait in seconds before a store that failed is tried again."""

LAST_S = 30.0
"""Seconds that ``end`` waits for unsent figures."""

METRICS, PARAMS = 1000, 100
"""Largest numbers of metrics and parameters that MLflow takes at a time."""

_FINISHED = "FINISHED"


class MlflowRun:
    """A run of MLflow; it begins when a step advances for the first time.

    ``progress`` is given to the work: it passes everything on, and its ``values`` become metrics.
    ``run_id`` is MLflow's, ``None`` until the run has begun there.
    """

    def __init__(
        self,
        store: TrackingStore,
        folder: Path,
        name: str,
        key: str,
        params: Mapping[str, Any],
        tags: Callable[[], Mapping[str, Any]],
        once: bool,
        progress: Progress,
    ) -> None:
        self.progress: Progress = _Listening(self, progress)
        self.run_id: str | None = None
        self._store, self._file = store, folder / RUN_FILE
        self._name, self._key, self._tags, self._once = name, key, tags, once
        self._params = {clean(k): short(v) for k, v in flat(params).items()}
        self._said = progress
        self._points: list[Any] = []  # metrics that were not sent yet
        self._last_steps: dict[str, int] | None = None
        self._trouble: str | None = None
        self._told = False
        self._summary: Any = None
        self._files: list[Path] = []
        self._status: str | None = None
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log figures with the current time; figures that are not finite are left out."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = [
            Metric(clean(name), float(value), now, step)
            for name, value in values.items()
            if math.isfinite(value)
        ]
        with self._lock:
            self._points += points
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()

    def result(
        self, result: Mapping[str, Any], *, files: Sequence[Path] = (), prefix: str = ""
    ) -> None:
        """Log what the work returned: its numbers, itself as ``summary.json``, and files.

        Files that are not there are left out.
        """
        self.metrics({prefix + name: value for name, value in figures(result).items()})
        self._summary, self._files = plain(result), [path for path in files if path.is_file()]

    def end(self, status: str) -> None:
        """Send what is left and close the run; say what could not be sent."""
        if self._thread is None:
            return
        self._status = status
        self._wake.set()
        self._thread.join(LAST_S)
        self.tell()
        if self._trouble is not None or self._thread.is_alive():
            count = plural(len(self._points), "figure")
            self._said.say(f"MLflow does not have all of this run: {count} and the end are missing")
        else:
            self._said.say(f"MLflow: run {self.run_id} in {self._store.uri}")

    def tell(self) -> None:
        """Say once that MLflow failed; called from the thread of the work."""
        if self._trouble is not None and not self._told:
            self._told = True
            self._said.say(f"MLflow fails, the work goes on without it: {self._trouble}")

    def _work(self) -> None:
        wait = 0.0
        while True:
            self._wake.wait(wait)
            status = self._status  # Once it is set, no more figures come.
            try:
                check_answer(self._store.uri)
                self._send()
                if status is not None:
                    self._finish(status)
                self._trouble, wait = None, SEND_S
            except Exception as error:  # MLflow's, SQLAlchemy's, requests'
                self._trouble = first_line(error)
                wait = min(2 * max(wait, SEND_S), AGAIN_S)
            if status is not None:
                return

    def _send(self) -> None:
        """Send the figures so far; they are dropped here when MLflow has them."""
        if self.run_id is None:
            self._begin()
        while points := self._points[:METRICS]:
            fresh = [point for point in points if point.step > self._last_step(point.key)]
            if fresh:
                self._store.client.log_batch(self.run_id, metrics=fresh)
            with self._lock:
                del self._points[: len(points)]

    def _last_step(self, name: str) -> int:
        """Return the last step of a metric before the run was continued."""
        known = self._last_steps
        if known is None:
            return -1
        if name not in known:
            history = self._store.client.get_metric_history(self.run_id, name)
            # The figures of a result have step 0 always, and are new each time.
            known[name] = max((point.step for point in history if point.step), default=-1)
        return known[name]

    def _begin(self) -> None:
        """Continue the folder's run, or begin one; log its parameters and tags."""
        client = self._store.client
        found = self._before()
        tags = {clean(name): short(value) for name, value in self._tags().items()}
        params = dict(self._params)
        if found is None:
            with suppress(Exception):  # systems without user names
                tags.setdefault("mlflow.user", getpass.getuser())
            tags.setdefault("mlflow.source.name", "toolkit")
            found = client.create_run(self._store.experiment_id, run_name=self._name)
        else:
            client.update_run(found.info.run_id, status="RUNNING")
            self._last_steps = {}
            # A parameter cannot be changed: a new value, such as a larger budget, is a tag.
            old = found.data.params
            tags |= {f"now.{k}": v for k, v in params.items() if old.get(k, v) != v}
            params = {name: value for name, value in params.items() if name not in old}
        run_id = found.info.run_id
        kept = {"run_id": run_id, "key": self._key, "tracking_uri": self._store.uri}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, orjson.dumps(kept, option=orjson.OPT_INDENT_2))
        self._log_texts(run_id, params, tags)
        self.run_id = run_id

    def _log_texts(self, run_id: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        log = self._store.client.log_batch
        all_params = [Param(name, value) for name, value in params.items()]
        all_tags = [RunTag(name, value) for name, value in tags.items()]
        for at in range(0, max(len(all_params), len(all_tags)), PARAMS):
            part = slice(at, at + PARAMS)
            log(run_id, params=all_params[part], tags=all_tags[part])

    def _before(self) -> Any:
        """Return the run of the folder's work; ``None`` if this store has none."""
        try:
            kept = orjson.loads(self._file.read_bytes())
            run_id = str(kept["run_id"])
            same = kept["key"] == self._key and kept["tracking_uri"] == self._store.uri
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
            return None
        if not same:
            return None
        from mlflow.exceptions import MlflowException

        try:
            run = self._store.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return run if run.info.lifecycle_stage == "active" else None

    def _finish(self, status: str) -> None:
        client = self._store.client
        try:
            for path in self._files:
                client.log_artifact(self.run_id, str(path))
            if self._summary is not None:
                with tempfile.TemporaryDirectory(prefix="toolkit-") as made:
                    path = Path(made) / "summary.json"
                    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
                    options |= orjson.OPT_SERIALIZE_NUMPY
                    path.write_bytes(orjson.dumps(self._summary, default=str, option=options))
                    client.log_artifact(self.run_id, str(path))
        finally:
            # The run is ended even if its artifacts cannot be stored.
            client.set_terminated(self.run_id, status)
            if self._once and status == _FINISHED:
                self._file.unlink(missing_ok=True)


class _Listening:
    """Passes progress on, and its ``values`` to the run."""

    def __init__(self, run: MlflowRun, inner: Progress) -> None:
        self._run, self._inner = run, inner

    @contextmanager
    def step(self, label: str, total: float | None = None) -> Iterator[Step]:
        with self._inner.step(label, total) as step:
            yield _ListeningStep(self._run, step)

    def say(self, text: str) -> None:
        self._inner.say(text)


class _ListeningStep:
    def __init__(self, run: MlflowRun, inner: Step) -> None:
        self._run, self._inner, self._done = run, inner, 0.0

    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        self._inner.advance(by, note=note, values=values)
        self._done += by
        self._run.metrics(values or {}, round(self._done))
        self._run.tell()


@contextmanager
def mlflow_run(
    folder: str | Path,
    *,
    name: str,
    place: str | Path | None = None,
    experiment: str | None = None,
    key: str = "",
    params: Mapping[str, Any] | None = None,
    tags: Callable[[], Mapping[str, Any]] = dict,
    once: bool = False,
    progress: Progress = SILENT,
) -> Iterator[MlflowRun]:
    """Open the run of work that writes into a folder; work that is resumed there continues it.

    It ends as ``FINISHED``, after an interrupt as ``KILLED``, after another error as ``FAILED``.
    ``name`` is its name in MLflow; ``place`` and ``experiment`` are as for ``open_store``. Work in
    the folder with the same ``key`` continues the run; with ``once``, only if it is unfinished.
    ``tags`` is called when the run begins.

    Raises ``ToolkitError`` if MLflow cannot be used, before anything begins.
    """
    store = open_store(place, experiment)
    run = MlflowRun(store, Path(folder), name, key, params or {}, tags, once, progress)
    try:
        yield run
    except BaseException as error:
        run.end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    run.end(_FINISHED)
