"""How long work says how far it is: the library reports steps, the caller draws them.

A caller's own ``Progress`` is told all that happens: a step is opened, advanced and closed (also by
an error), and something is said. That is what a log, a dashboard or a tracker needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Values = Mapping[str, float] | None
"""Figures of a moment by their names, which end in their unit."""


class Step(Protocol):
    """One piece of long work under way."""

    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        """Move on by so many units; ``note`` replaces the text behind the bar."""
        ...


class Progress(Protocol):
    """Opens steps; ``total`` is in the step's own units, ``None`` when unknown."""

    def step(self, label: str, total: float | None = None) -> AbstractContextManager[Step]:
        """Open a step as a context manager that gives a ``Step``."""
        ...

    def say(self, text: str) -> None:
        """Say something that stays to be read."""
        ...


class _SilentStep:
    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        return None


class Silent:
    """The default: says nothing."""

    @contextmanager
    def step(self, label: str, total: float | None = None) -> Iterator[Step]:
        """Open a step that draws nothing."""
        yield _SilentStep()

    def say(self, text: str) -> None:
        """Say nothing."""


SILENT: Progress = Silent()
