"""The page in a real browser, where there is one: nothing sticks out, nothing is fetched."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from toolkit.reports import render_html

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PROBE = """
<script>
var root = document.documentElement;
document.body.setAttribute("data-probe", JSON.stringify({
  over: root.scrollWidth - root.clientWidth,
  fetched: performance.getEntriesByType("resource").length,
  escaped: Array.prototype.filter.call(
    document.querySelectorAll(".scroller .hidden"),
    function (one) { return !one.offsetParent || !one.offsetParent.closest(".scroller"); }
  ).length,
  hidden: document.querySelectorAll(".scroller .hidden").length,
  narrow: getComputedStyle(document.querySelector(".chart.narrow")).display,
  sortable: document.querySelectorAll("th button").length
}));
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [500, 1280])
def test_the_page_fits_and_needs_nothing(
    summary: dict[str, Any], tmp_path: Path, width: int
) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html(summary).replace("</body>", PROBE), encoding="utf-8")
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/u",
         f"--window-size={width},900", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert found is not None
    probe = json.loads(unescape(found[1]))
    assert probe["over"] <= 0
    assert probe["fetched"] == 0
    assert probe["hidden"] > 0
    assert probe["escaped"] == 0
    assert probe["sortable"] > 0
    assert (probe["narrow"] == "block") == (width < 560)
