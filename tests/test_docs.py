"""The documentation: links resolve, generated pages are fresh, examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from made_autotvm import write_autotvm
from typer.testing import CliRunner

from tests.benchmarks.race_tables import tables
from toolkit.cli.main import app
from toolkit.cli.reference import pages
from toolkit.testing import SchedulerConformance, StrategyConformance

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOC_PAGES = [*TOP, *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "datasets").rglob("*.md"))]
GENERATED = pages()
WORDS_MAX = 1200
"""Words of a page that is read to learn or to look up; results are as long as they are."""
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """A page without its code blocks."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as they are linked to."""
    heads = re.findall(r"^#+ +(.+)$", text_of(page), flags=re.M)
    plain = [re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads]
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", DOC_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for pair in LINK.findall(text_of(page)):
        link = pair[0] or pair[1]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_fresh(name: str) -> None:
    page = DOCS / "reference" / name
    assert page.read_text(encoding="utf-8") == GENERATED[name], (
        "stale: run python -m toolkit.cli.reference docs/reference"
    )


@pytest.mark.parametrize("folder", ["commands", "strategies"])
def test_no_generated_page_outlives_its_subject(folder: str) -> None:
    found = {f"{folder}/{page.name}" for page in (DOCS / "reference" / folder).iterdir()}
    assert found <= set(GENERATED)


@pytest.mark.parametrize("page", DOC_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_short(page: Path) -> None:
    if page.parent.name != "results" and page.name != "CHANGELOG.md":
        assert len(page.read_text(encoding="utf-8").split()) <= WORDS_MAX


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    todo = [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        for pair in LINK.findall(text_of(page)):
            link = (pair[0] or pair[1]).partition("#")[0]
            if link and not re.match(r"[a-z]+:", link):
                todo.append((page.parent / link).resolve())
    assert sorted(set(DOCS.rglob("*.md")) - reached) == []


@pytest.mark.parametrize("page", DOC_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_no_machine_and_promise_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(^|[\s(`])/(home|work|root|tmp|Users)/", text)
    for empty in ("TODO", "TBD", "FIXME", "lorem", "XXX", "coming soon"):
        assert empty.lower() not in text.lower().split(), empty


def python_blocks(page: Path) -> list[str]:
    """Python code blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", DOC_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_examples_are_python(page: Path) -> None:
    for block in python_blocks(page):
        compile(block, str(page), "exec")


def test_the_page_of_a_race_holds_what_its_raw_files_say() -> None:
    page = (DOCS / "results" / "two-threads.md").read_text(encoding="utf-8")
    legs, *others = tables(DOCS / "results" / "two-threads")
    assert legs.count("\n| `") >= 6 and legs in page
    assert all(table in page for table in others)


def test_readme_starts_with_its_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    code = [line.strip() for line in lines[:6] if line.startswith("    ")]
    assert code == [
        "python -m pip install -e '.[live]' && toolkit demo",
        "python -m pip install -e '.[test]' && pytest -n 2",
    ]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's working directory: a folder ``logs`` and nothing else."""
    write_autotvm(tmp_path / "logs" / "conv.json", [(16, 32, 7), (32, 32, 7), (32, 64, 7)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/tutorial/a-day.md",
        "docs/how-to/describe.md",
        "docs/how-to/python.md",
        "docs/how-to/plugins.md",
    ],
)
def test_python_examples_run(name: str, work: Path) -> None:
    """The examples of a page, one after the other, in one namespace, on logs of the test's own."""
    blocks = python_blocks(ROOT / name)
    assert blocks
    ingested = CliRunner().invoke(app, ["ingest", "logs/"])
    assert ingested.exit_code == 0, ingested.output
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)
    if "write_report" in namespace:
        assert (work / "tuning" / "report.html").is_file()


def plugin_of_the_page(name: str) -> Any:
    """A class of the page on plug-ins, word for word."""
    namespace: dict[str, Any] = {}
    for block in python_blocks(DOCS / "how-to" / "plugins.md"):
        exec(compile(block, "plugins.md", "exec"), namespace)
    return namespace[name]


class TestTheStrategyOfThePage(StrategyConformance):
    @pytest.fixture
    def plugin(self) -> Any:
        return plugin_of_the_page("Patient")


class TestTheSchedulerOfThePage(SchedulerConformance):
    @pytest.fixture
    def plugin(self) -> Any:
        return plugin_of_the_page("Slowest")
