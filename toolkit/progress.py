"""How long work says how far it is: the library reports steps, the caller draws them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Step(Protocol):
    """One piece of long work under way."""

    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
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
    def advance(self, by: float = 1.0, *, note: str | None = None) -> None:
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
