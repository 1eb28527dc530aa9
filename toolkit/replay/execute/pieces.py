"""Work in pieces that do not depend on each other: each is kept when it is done.

In any number of processes and after any interruption the same pieces come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from toolkit.progress import Progress
from toolkit.replay.execute.parts import Parts
from toolkit.replay.execute.processes import in_processes


class Piece(Protocol):
    """One piece of work; small, and the same in every process."""

    @property
    def name(self) -> tuple[str, ...]:
        """Under which its result is kept."""

    @property
    def note(self) -> str:
        """What progress says when it is done."""


PieceT = TypeVar("PieceT", bound=Piece)
Made = TypeVar("Made", bound=Piece, contravariant=True)


class Maker(Protocol[Made]):
    """Makes pieces: sent once to each process, where it opens what is large."""

    def run(self, piece: Made) -> Any:
        """Make one piece: JSON-ready."""

    def size(self, piece: Made) -> int:
        """How much work it is, on any scale."""


def finish(
    title: str,
    pieces: Sequence[PieceT],
    maker: Maker[PieceT],
    parts: Parts,
    progress: Progress,
    workers: int = 1,
) -> list[Any]:
    """Make what is missing of all pieces; return them in order."""
    todo = [piece for piece in pieces if parts.kept(piece.name) is None]
    with progress.step(title, len(pieces)) as step:
        done = len(pieces) - len(todo)
        step.advance(done, note="resumed" if done else None)
        if workers <= 1 or len(todo) <= 1:
            for piece in todo:
                parts.keep(piece.name, maker.run(piece))
                step.advance(note=piece.note)
        else:
            # The largest first, so that no worker begins a long one when the others are done.
            todo.sort(key=lambda piece: (-maker.size(piece), piece.name))
            items = [(piece,) for piece in todo]
            for note in in_processes(_work, items, workers, _start, (maker, parts)):
                step.advance(note=note)
    return [parts.kept(piece.name) for piece in pieces]


_worker: list[tuple[Maker[Any], Parts]] = []


def _start(maker: Maker[Any], parts: Parts) -> None:
    _worker[:] = [(maker, parts)]


def _work(piece: Piece) -> str:
    maker, parts = _worker[0]
    parts.keep(piece.name, maker.run(piece))
    return piece.note
