"""Keep output that TVM and linkers print themselves off the terminal, where a bar is drawn."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Discard this process's standard error, below Python; Python errors are raised as usual.

    TVM prints warnings that do not help a user: "Unknown schedule rule" for every pooling.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
