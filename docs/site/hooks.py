"""Hooks of the site: the data cards become pages of it, and links to them lead there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]


def on_files(files: Any, config: Any) -> Any:
    """Add ``datasets/**/README.md``."""
    for card in sorted((ROOT / "datasets").rglob("README.md")):
        uri = card.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, content=card.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """In the repository ``docs`` and ``datasets`` lie side by side; here ``docs`` is the top."""
    del config, files
    if page.file.src_uri.startswith("datasets/"):
        return re.sub(r"\]\(\.\./\.\./docs/", "](../../", markdown)
    return re.sub(r"\]\(\.\./\.\./datasets/", "](../datasets/", markdown)
