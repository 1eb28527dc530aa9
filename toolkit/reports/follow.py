"""Writes the report again whenever what it is made from changes, until it is told to end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from polars.exceptions import PolarsError

from toolkit.errors import ToolkitError, first_line
from toolkit.progress import SILENT, Progress
from toolkit.reports.html import write_page

SHARE = 0.1
"""At most so much of the time is spent on drawing: a search beside it measures."""

REFRESH_S = 5.0
"""A browser loads the page anew no more often."""

State = dict[str, tuple[int, int]]


def follow_report(
    make: Callable[[], str],
    out: str | Path,
    places: Sequence[Path],
    *,
    apart: Sequence[Path] = (),
    interval_s: float = 2.0,
    rounds: int | None = None,
    progress: Progress = SILENT,
) -> Generator[Path, None, None]:
    """Write the page, wait for files to change, write it again; give its path each time.

    While it is followed the page loads itself anew in a browser. The one that stays at the end does
    not. Where there is nothing to report yet, that is said, and waited for.

    ``make`` reads all and draws the page (``render_html``). Files in the folders ``places`` are
    watched every ``interval_s`` seconds, but no hidden ones, none that are ``apart``, and not
    ``out``. It ends after so many ``rounds`` of looks (never, by default).
    """
    target = Path(out)
    ignored = {path.resolve() for path in (target, *apart)}
    page, said = None, ""
    try:
        for _ in _changes(places, ignored, interval_s, rounds):
            try:
                page = make()
            except (ToolkitError, OSError, PolarsError) as error:
                # What is read may be half written, not begun, or replaced while it is read.
                if first_line(error) != said:
                    said = first_line(error)
                    progress.say(f"waiting: {said}")
                continue
            yield write_page(_with_refresh(page, max(interval_s, REFRESH_S)), target)
    finally:
        if page is not None:
            write_page(page, target)


def _with_refresh(page: str, seconds: float) -> str:
    """Return a page that loads itself anew after so many seconds, where a reader looks at it."""
    script = (Path(__file__).parent / "page" / "refresh.js").read_text(encoding="utf-8")
    script = script.replace("EVERY_MS", str(round(1000 * seconds)))
    body, end, after = page.rpartition("</body>")
    return f"{body}<script>\n{script}</script>\n{end}{after}"


def _changes(
    places: Sequence[Path], ignored: set[Path], interval_s: float, rounds: int | None
) -> Iterator[None]:
    """Give control at first and after each change, and not before the last answer has its share."""
    known: State | None = None
    wait, look = 0.0, 0
    while rounds is None or look < rounds:
        if look:
            time.sleep(max(interval_s, wait))
        look, wait = look + 1, 0.0
        found = _state(places, ignored)
        if found == known:
            continue
        known = found
        began = time.monotonic()
        yield
        wait = (time.monotonic() - began) * (1 / SHARE - 1)


def _state(places: Sequence[Path], ignored: set[Path]) -> State:
    def watched(path: Path) -> bool:
        return not path.name.startswith(".") and path.resolve() not in ignored

    found: State = {}
    for place in places:
        for folder, folders, names in os.walk(place):
            folders[:] = [name for name in folders if watched(Path(folder, name))]
            for path in filter(watched, (Path(folder, name) for name in names)):
                with suppress(OSError):  # it was there a moment ago
                    about = path.stat()
                    found[str(path)] = (about.st_size, about.st_mtime_ns)
    return found
