"""Independent pieces of work on the workers of a Dask cluster.

Dask (``distributed``, extra ``[cluster]``) hands the pieces out, repeats those of a lost worker,
and shows the progress on its dashboard.
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
"""Seconds to wait for a scheduler's answer, and for its first worker."""

AHEAD = 4
"""Number of pieces per worker that run or wait at the scheduler."""

Shared = TypeVar("Shared")
Piece = TypeVar("Piece")
Answer = TypeVar("Answer")


class Cluster:
    """Workers of a Dask scheduler; a context manager.

    Parameters
    ----------
    place
        ``local:N`` starts a scheduler and N workers on this machine. Anything else is the address
        of a scheduler, such as ``tcp://10.0.0.5:8786``. Its workers must have this version of the
        toolkit and one thread each.

    Raises
    ------
    ToolkitError
        When Dask is missing, no scheduler or worker answers, or the workers have several threads
        or another version of the toolkit.
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
                    # ':0' is a free port: another dashboard may use the default one. Dask recovers
                    # from a lost worker by itself, so its messages are not needed.
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
            # A client that did not connect closes itself when it is garbage-collected. If that
            # happens while another client starts, it waits forever. So collect it now, when no
            # error refers to it any more.
            gc.collect()
            raise ToolkitError(
                f"no Dask cluster answers at {place!r}: {said}",
                cure="start one with 'dask scheduler' and 'dask worker ADDRESS --nthreads 1', or "
                "use local:4 for four processes on this machine",
            )
        self._executor = self._client.get_executor(pure=False)
        progress.say(f"Dask's dashboard: {self._client.dashboard_link}")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _check(self) -> None:
        """Raise ``ToolkitError`` unless workers have one thread and this version of the toolkit."""
        threads = self._client.nthreads()
        if any(count > 1 for count in threads.values()):
            raise ToolkitError(
                "the cluster's workers have several threads each",
                cure="start the workers with --nthreads 1",
            )
        try:
            versions = set(self._client.run(_version).values())
        except ImportError:
            versions = {"none"}
        if versions != {__version__}:
            raise ToolkitError(
                f"the cluster's workers have the toolkit in version {', '.join(sorted(versions))}, "
                f"this process has version {__version__}",
                cure="install the same version everywhere",
            )

    @property
    def workers(self) -> int:
        """Current number of workers."""
        return len(self._client.nthreads())

    def submit(
        self, make: Callable[[Shared, Piece], Answer], shared: Shared, piece: Piece
    ) -> Future[Answer]:
        """Call ``make(shared, piece)`` on a worker."""
        answer: Future[Answer] = Future()

        def take(done: Future[Answer]) -> None:
            # A future that Dask cancelled (its scheduler is gone) has no exception.
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
        """Call ``make(shared, piece)`` for each piece; yield piece and answer when it is done.

        Pieces start in the given order, and are taken from ``pieces`` only when needed. ``shared``
        is sent once to each worker that needs it. An error of a worker is raised here.
        """
        from distributed import as_completed

        # A task, not scattered data: Dask repeats it when its worker is lost.
        everywhere = self._client.submit(_same, shared, pure=False)
        numbered, done = enumerate(pieces), as_completed()
        waiting: dict[Any, Piece] = {}

        def hand_out() -> None:
            # The difference is negative after a worker was lost.
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
    """Return the error to raise here for an error of a worker."""
    from distributed import KilledWorker

    if isinstance(error, CancelledError):
        return ToolkitError(
            "the cluster's scheduler ended, or cannot be reached any more",
            cure="finished work is kept: start the scheduler and the same command again",
        )
    if not isinstance(error, KilledWorker):
        return error
    return ToolkitError(
        f"one piece of work ended its worker {error.allowed_failures + 1} times",
        cure="finished work is kept: give the workers more memory, and run the command again",
    )


def _same(shared: Shared) -> Shared:
    return shared


def _version() -> str:
    return __version__
