"""A cluster behind one call: independent pieces of work on Dask's workers, as they are done.

Dask (``distributed``, extra ``[cluster]``) hands the pieces out, makes those of a lost worker
again, and shows all of it on its dashboard.
"""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from itertools import islice
from typing import Any, TypeVar

from toolkit import __version__
from toolkit.errors import ToolkitError, first_line
from toolkit.progress import SILENT, Progress

ANSWER_S = 15.0
"""Seconds that a scheduler may take to answer, and its first worker to come."""

AHEAD = 4
"""So many pieces a worker are under way or wait at the scheduler."""

Shared = TypeVar("Shared")
Piece = TypeVar("Piece")
Answer = TypeVar("Answer")


class Cluster:
    """Workers of a Dask scheduler; a context manager.

    Parameters
    ----------
    place
        ``local:N`` starts a scheduler and N workers on this machine; everything else is the
        address of a scheduler, such as ``tcp://10.0.0.5:8786``. Its workers have this version of
        the toolkit and one thread each.

    Raises
    ------
    ToolkitError
        When Dask is missing, no scheduler or worker answers, or the workers do not fit.
    """

    def __init__(self, place: str, progress: Progress = SILENT) -> None:
        try:
            from asyncio import TimeoutError as NoAnswer

            import distributed
        except ImportError:
            raise ToolkitError(
                "Dask's distributed is not installed",
                cure="pip install 'tvm-tuning-toolkit[cluster]'",
            ) from None
        local = re.fullmatch(r"local:([1-9]\d{0,3})", place)
        said = None
        try:
            with ExitStack() as stack:
                at: Any = place
                if local:
                    # On a free port: another dashboard may have the usual one. What Dask says of
                    # a lost worker, it mends by itself.
                    at = stack.enter_context(
                        distributed.LocalCluster(
                            n_workers=int(local[1]),
                            threads_per_worker=1,
                            dashboard_address=":0",
                            silence_logs=logging.CRITICAL,
                        )
                    )
                self._client = stack.enter_context(distributed.Client(at, timeout=ANSWER_S))
                self._client.wait_for_workers(1, timeout=ANSWER_S)
                self._check()
                self._stack = stack.pop_all()
        except (OSError, TimeoutError, NoAnswer, ValueError) as error:
            said = first_line(error)
        if said is not None:
            # A client that did not connect closes itself when it is collected, and waits for ever
            # where that is while another one starts: now, with no error left that holds it.
            gc.collect()
            raise ToolkitError(
                f"no Dask cluster answers at {place!r}: {said}",
                cure="'dask scheduler' and 'dask worker ADDRESS --nthreads 1' start one; local:4 "
                "is four processes of this machine",
            )
        self._executor = self._client.get_executor(pure=False)
        progress.say(f"Dask's dashboard: {self._client.dashboard_link}")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _check(self) -> None:
        """Make sure that the workers compute what this process would."""
        threads = self._client.nthreads()
        if any(count > 1 for count in threads.values()):
            raise ToolkitError(
                "its workers have several threads each", cure="start them with --nthreads 1"
            )
        try:
            versions = set(self._client.run(_version).values())
        except ImportError:
            versions = {"none"}
        if versions != {__version__}:
            raise ToolkitError(
                f"its workers have the toolkit in version {', '.join(sorted(versions))}, "
                f"this process in {__version__}",
                cure="install the same version everywhere",
            )

    @property
    def workers(self) -> int:
        """How many there are now."""
        return len(self._client.nthreads())

    def submit(
        self, make: Callable[[Shared, Piece], Answer], shared: Shared, piece: Piece
    ) -> Future[Answer]:
        """Call ``make(shared, piece)`` on a worker."""
        answer: Future[Answer] = Future()

        def take(done: Future[Answer]) -> None:
            # What Dask cancels, since its scheduler is gone, has no exception to ask for.
            error = CancelledError() if done.cancelled() else done.exception()
            if error is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(_told(error))

        self._executor.submit(make, shared, piece).add_done_callback(take)
        return answer

    def results(
        self, make: Callable[[Shared, Piece], Answer], shared: Shared, pieces: Iterable[Piece]
    ) -> Iterator[tuple[Piece, Answer]]:
        """Call ``make(shared, piece)`` for each piece; yield piece and answer as they are done.

        Pieces are begun in the order in which they are given, and taken as they are needed.
        ``shared`` is sent once to each worker that needs it. What a worker raises is raised here.
        """
        from distributed import as_completed

        # A task, and not data that is put there: Dask makes it again when its worker is lost.
        everywhere = self._client.submit(_same, shared, pure=False)
        numbered, done = enumerate(pieces), as_completed()
        waiting: dict[Any, Piece] = {}

        def hand_out() -> None:
            # Fewer than before, where a worker was lost.
            free = max(0, AHEAD * max(1, self.workers) - len(waiting))
            for place, piece in islice(numbered, free):
                future = self._client.submit(make, everywhere, piece, pure=False, priority=-place)
                waiting[future] = piece
                done.add(future)

        try:
            hand_out()
            for future in done:
                answer, piece = future.result(), waiting.pop(future)
                hand_out()
                yield piece, answer
        except Exception as error:
            raise _told(error) from None
        finally:
            self._client.cancel([*waiting, everywhere])


def _told(error: BaseException) -> BaseException:
    """An error of a worker as it is told here."""
    from distributed import KilledWorker

    if isinstance(error, CancelledError):
        return ToolkitError(
            "the cluster's scheduler ended, or cannot be reached any more",
            cure="what was finished is kept: start it again, and run the command again",
        )
    if not isinstance(error, KilledWorker):
        return error
    return ToolkitError(
        f"the workers that did a piece of work ended early, {error.allowed_failures + 1} times",
        cure="what was finished is kept: give them more memory, and run the command again",
    )


def _same(shared: Shared) -> Shared:
    return shared


def _version() -> str:
    return __version__
