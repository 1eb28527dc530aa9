"""Keeps what TVM and linkers print themselves off the terminal: a bar is drawn there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Send this process's standard error to nowhere, below Python (errors are raised, not printed).

    TVM writes warnings that say nothing to a user: "Unknown schedule rule" for every pooling.
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
