"""Linear algebra by one thread: small products gain nothing from more, and several fits at once
that share their threads lose much. With one thread sums are also formed in the same order."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # Looks through the loaded libraries: takes milliseconds.


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit the process's BLAS to one thread inside a ``with`` statement.

    Only one thread of a process can change that (the first one that did): whoever starts threads
    that compute holds the limit around them.
    """
    limit: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limit
