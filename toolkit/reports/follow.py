"""Writes the report again whenever its inputs change, until it is stopped."""

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
"""Largest share of the time that drawing takes, since a search may be measuring."""

REFRESH_S = 5.0
"""Shortest time between two reloads of the page in a browser."""

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
    """Write the page, wait for files to change, write it again; yield its path each time.

    Until the end the page reloads itself in a browser; the final page does not. If there is nothing
    to report yet, it says so and waits.

    ``make`` reads the inputs and draws the page (``render_html``). Files in the folders ``places``
    are checked every ``interval_s`` seconds, except hidden files, paths in ``apart``, and ``out``.
    It ends after ``rounds`` checks (never, by default).
    """
    target = Path(out)
    ignored = {path.resolve() for path in (target, *apart)}
    page, said = None, ""
    try:
        for _ in _changes(places, ignored, interval_s, rounds):
            try:
                page = make()
            except (ToolkitError, OSError, PolarsError) as error:
                # Inputs may be half written, missing, or replaced while they are read.
                if first_line(error) != said:
                    said = first_line(error)
                    progress.say(f"waiting: {said}")
                continue
            yield write_page(_with_refresh(page, max(interval_s, REFRESH_S)), target)
    finally:
        if page is not None:
            write_page(page, target)


def _with_refresh(page: str, seconds: float) -> str:
    """Return a page that reloads itself after this many seconds, keeping the reader's place."""
    script = (Path(__file__).parent / "page" / "refresh.js").read_text(encoding="utf-8")
    script = script.replace("EVERY_MS", str(round(1000 * seconds)))
    body, end, after = page.rpartition("</body>")
    return f"{body}<script>\n{script}</script>\n{end}{after}"


def _changes(
    places: Sequence[Path], ignored: set[Path], interval_s: float, rounds: int | None
) -> Iterator[None]:
    """Yield at first and after each change; wait long enough for drawing to keep to ``SHARE``."""
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
                with suppress(OSError):  # deleted meanwhile
                    about = path.stat()
                    found[str(path)] = (about.st_size, about.st_mtime_ns)
    return found
