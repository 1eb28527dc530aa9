"""Progress of long work: the library reports steps, the caller shows them.

A caller can pass its own ``Progress``, for a log, a dashboard or a tracker. It is called when a
step is opened, advanced or closed (also by an error), and for every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Values = Mapping[str, float] | None
"""Current figures by name; a name ends in its unit."""


class Step(Protocol):
    """One running piece of long work."""

    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        """Advance by ``by`` units; ``note`` replaces the text after the bar."""


class Progress(Protocol):
    """Opens steps; ``total`` is in the step's own units, ``None`` when unknown."""

    def step(self, label: str, total: float | None = None) -> AbstractContextManager[Step]:
        """Open a step as a context manager that gives a ``Step``."""

    def say(self, text: str) -> None:
        """Show a message that stays visible."""


class _SilentStep:
    def advance(self, by: float = 1.0, *, note: str | None = None, values: Values = None) -> None:
        return None


class Silent:
    """The default: shows nothing."""

    @contextmanager
    def step(self, label: str, total: float | None = None) -> Iterator[Step]:
        """Open a step that shows nothing."""
        yield _SilentStep()

    def say(self, text: str) -> None:
        """Show nothing."""


SILENT: Progress = Silent()
