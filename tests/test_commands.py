"""Every command has help, an example that fits its options, ``--json`` and a page in the docs."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolkit import __version__
from toolkit.cli.main import app
from toolkit.cli.reference import Command, commands

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
COMMANDS = {command.name: command for command in commands()}
# What others script against (README, "the commands").
PROMISED: dict[str, set[str]] = {
    "ingest": {"--dataset", "--machine"},
    "describe": {"--dataset"},
    "features": {"--dataset", "--extractor"},
    "train throughput": {"--dataset", "--recipe", "--out"},
    "train mutation": {"--dataset", "--recipe", "--out"},
    "evaluate": {"--dataset"},
    "simulate": {"--dataset", "--scenario", "--model", "--seeds", "--workers", "--out"},
    "collect": {"--workload", "--target", "--trials", "--out"},
    "validate": {"--dataset", "--task", "--top", "--target", "--seconds", "--out"},
    "report": {"--out"},
    "demo": {"--out"},
}
ALL = pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))


def options(command: Command) -> dict[str, bool]:
    """Names of a command's options, and whether they take a value."""
    return {
        name: bool(parameter.value)
        for parameter in command.parameters
        if parameter.is_option
        for name in parameter.names
    }


def faults(line: str) -> list[str]:
    """Say what is wrong with a documented ``toolkit`` call, by names and numbers of values."""
    words = shlex.split(line, comments=True)
    assert words[0] == "toolkit"
    depth = 2 if words[1:3] and " ".join(words[1:3]) in COMMANDS else 1
    name, rest = " ".join(words[1 : 1 + depth]), words[1 + depth :]
    if name.startswith("-") or name == "":
        return []
    if name not in COMMANDS:
        return [f"there is no command {name!r}"]
    known = options(COMMANDS[name])
    found, values = [], 0
    while rest:
        word = rest.pop(0)
        if word in ("&&", "|", ">", ";"):
            break
        option, equals, _ = word.partition("=")
        if option.startswith("--") and option != "--help":
            if option not in known:
                found.append(f"{name} has no option {option}")
            elif known[option] and not equals:
                if not rest or rest[0].startswith("--"):
                    found.append(f"{option} needs a value")
                else:
                    rest.pop(0)
        elif not option.startswith("--"):
            values += 1
    for parameter in COMMANDS[name].parameters:
        needed = parameter.is_option and parameter.required and "--help" not in words
        if needed and not set(parameter.names) & {word.partition("=")[0] for word in words}:
            found.append(f"{name} needs {parameter.names[0]}")
    arguments = [p for p in COMMANDS[name].parameters if not p.is_option]
    if values > 0 and not arguments:
        found.append(f"{name} takes no argument")
    if values == 0 and arguments and "--help" not in words:
        found.append(f"{name} needs {arguments[0].names[0]}")
    return found


@pytest.mark.parametrize("name", PROMISED)
def test_what_others_script_against_is_there(name: str) -> None:
    assert name in COMMANDS
    assert PROMISED[name] | {"--json"} <= set(options(COMMANDS[name]))


@ALL
def test_help_says_what_it_does_and_gives_an_example(command: Command) -> None:
    assert command.summary.endswith(".")
    assert command.example.startswith(f"toolkit {command.name}")
    assert faults(command.example) == []
    assert all(parameter.help.strip() for parameter in command.parameters)


@ALL
def test_help_is_shown(command: Command) -> None:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    done = CliRunner().invoke(app, [*command.name.split(), "--help"], env=environment)
    assert done.exit_code == 0
    assert "Example" in done.stdout
    assert "--json" in done.stdout


def test_the_first_help_names_every_command_once() -> None:
    done = CliRunner().invoke(app, ["--help"])
    listed = re.findall(r"^  ([a-z]+) +[A-Z].*\.?$", done.stdout, re.MULTILINE)
    assert listed == list(dict.fromkeys(name.split()[0] for name in COMMANDS))


def test_the_version_is_shown() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == __version__


@ALL
def test_it_has_a_page(command: Command) -> None:
    pages = [p for p in DOCS.rglob("*.md") if not p.is_relative_to(DOCS / "reference")]
    mentioned = re.compile(rf"\btoolkit {command.name}\b")
    assert any(mentioned.search(page.read_text(encoding="utf-8")) for page in pages)


@ALL
def test_wrong_usage_is_exit_code_2(command: Command) -> None:
    done = CliRunner().invoke(app, [*command.name.split(), "--no-such-option"])
    assert done.exit_code == 2


def documented() -> list[tuple[str, str]]:
    """Every ``toolkit`` line in a code block of the documentation, with its page."""
    found = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]:
        fenced = False
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                fenced = not fenced
            elif fenced or line.startswith("    "):
                for part in line.strip().removeprefix("$ ").split("&&"):
                    if part.strip().startswith("toolkit "):
                        found.append((str(page.relative_to(ROOT)), part.strip()))
    return found


def test_documented_commands_fit_their_options() -> None:
    lines = documented()
    assert len(lines) > 20
    wrong = {f"{page}: {line}": found for page, line in lines if (found := faults(line))}
    assert wrong == {}
