"""What tests of commands share: a recipe that trains in a moment, and a command's JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from made_autotvm import write_autotvm
from typer.testing import CliRunner

from toolkit.cli.main import app

QUICK = """
kind = "throughput"
[data]
min_records = 20
judged_records = 50
[[models]]
library = "lightgbm"
rounds = 30
"""


def made_workplace(folder: Path) -> Path:
    """Put logs and a quick recipe into the current folder, and ingest them."""
    write_autotvm(folder / "logs" / "log.json")
    (folder / "quick.toml").write_text(QUICK)
    assert CliRunner().invoke(app, ["ingest", "logs"]).exit_code == 0
    return folder


def json_of(*arguments: str) -> dict[str, Any]:
    """Run a command that succeeds with ``--json`` and return the object that it prints."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = orjson.loads(result.stdout)
    return content
