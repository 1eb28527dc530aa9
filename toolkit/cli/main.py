"""The command ``toolkit``: each command parses its options, calls one function, and prints.

A command's module is imported when the command is called, and so are Rich and the option parsers:
``toolkit --help`` needs only the names below.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from toolkit import __version__
from toolkit.children import CALM
from toolkit.cli.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED

# Section of the help → command → module and function, and the first line of the command's help.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Logs and datasets": {
        "ingest": ("ingest.ingest", "Read tuning logs into the dataset."),
        "merge": ("ingest.merge", "Merge datasets, as if one ingest had read all logs."),
        "describe": ("describe.describe", "Show what the dataset holds, and what it tells."),
        "check": ("ingest.check", "Compare every file of the dataset with its checksum."),
        "export": ("export.export", "Write records as logs that TVM or Kernel Tuner read."),
        "query": ("export.query", "Run SQL on the dataset."),
        "features": ("features.features", "Compute features, or import features made elsewhere."),
    },
    "Models": {
        "train": ("train", "Train a model on the dataset's tasks."),
        "evaluate": ("evaluate.evaluate", "Judge a model, each task by a member without it."),
        "predict": ("predict.predict", "Score candidates with a trained model."),
    },
    "Searches, offline": {
        "simulate": ("simulate.simulate", "Replay strategies against recorded measurements."),
    },
    "On the device": {
        "lookup": ("tune.lookup", "Show what a dataset already holds for workloads or a network."),
        "collect": ("live.collect", "Measure new tuning logs on this machine."),
        "tune": ("tune.tune", "Tune workloads or a network into a database."),
        "validate": ("live.validate", "Refine the fastest recorded programs, prove the winner."),
        "audit": ("live.audit", "Measure a database's winners again: which still hold?"),
        "compile": ("compile.compile", "Compile a network with a tuned database."),
        "race": ("race.race", "Race stock MetaSchedule against strategies of the toolkit."),
    },
    "Results": {
        "report": ("report.report", "Put all results into one HTML file."),
        "demo": ("demo.demo", "Run the whole workflow on the bundled logs."),
    },
}
COMMANDS = {name: told for section in SECTIONS.values() for name, told in section.items()}
TRAIN = {name: f"train.{name}" for name in ("throughput", "mutation", "validity")}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield all commands, in the order of the help: name without ``toolkit``, and function."""
    for name, (place, _) in COMMANDS.items():
        if name != "train":
            yield name, _function(place)
            continue
        for kind, each in TRAIN.items():
            yield f"{name} {kind}", _function(each)


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(".")
    function: Callable[..., Any] = getattr(import_module(f"toolkit.cli.commands.{module}"), name)
    return function


def _made(name: str, place: str, summary: str) -> Any:
    from toolkit.cli.common import with_exit_codes

    group = name == "train"
    made = typer.Typer(
        name=name,
        help=summary if group else None,
        no_args_is_help=group,
        add_completion=False,
        rich_markup_mode="rich",
    )
    for each, where in (TRAIN if group else {name: place}).items():
        made.command(each)(with_exit_codes(_function(where)))
    return typer.main.get_command(made)


class _Toolkit(TyperGroup):
    """The command ``toolkit``, which makes its commands when they are called.

    Its help is printed without Rich, which takes long to import.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _made(cmd_name, *COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super(TyperGroup, self).format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                rows = [(name.ljust(width), summary) for name, (_, summary) in commands.items()]
                formatter.write_dl(rows)


app = typer.Typer(
    name="toolkit",
    help="Turn tensor-program tuning logs into datasets, predictors, replays and winners.",
    cls=_Toolkit,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _group(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Turn tensor-program tuning logs into datasets, predictors, replays and winners."""


def main() -> None:
    """Run the command line."""
    for name, value in CALM.items():
        os.environ.setdefault(name, value)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it, for example with >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal cannot show must not stop the command.
            stream.reconfigure(errors="backslashreplace")
    code: object = 0
    try:
        try:
            app()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
    except OSError as error:
        # Without this, Python would try again at its end and print its own message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            from toolkit.cli.common import say_error

            say_error(f"cannot write to standard output: {error.strerror}")
        code = code or EXIT_ERROR
    if code == EXIT_INTERRUPTED:
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)  # Python would wait for threads that still fit models
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
