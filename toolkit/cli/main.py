"""The command ``toolkit``: a thin skin; each command parses, calls one function, prints."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

import typer

from toolkit.children import CALM
from toolkit.cli.common import EXIT_ERROR, EXIT_INTERRUPTED, say_error, with_exit_codes

# In the order of the help: a module and its function; "tune" is "tune.tune".
COMMANDS = (
    *("ingest", "ingest.merge", "describe", "ingest.check", "export", "export.query", "features"),
    *("evaluate", "predict", "simulate", "tune.lookup", "live.collect", "live.validate", "tune"),
    *("live.audit", "compile", "race", "report", "demo"),
)
TRAIN_COMMANDS = ("train.throughput", "train.mutation", "train.validity")

app = typer.Typer(
    name="toolkit",
    help="Turn tensor-program tuning logs into datasets, predictors, replays and winners.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
training = typer.Typer(help="Train a model on the dataset's tasks.", no_args_is_help=True)
for group, commands in ((app, COMMANDS), (training, TRAIN_COMMANDS)):
    for command in commands:
        module, _, name = command.partition(".")
        found = import_module(f"toolkit.cli.commands.{module}")
        group.command()(with_exit_codes(getattr(found, name or module)))
app.add_typer(training, name="train")


def main() -> None:
    """Run the command line."""
    for name, value in CALM.items():
        os.environ.setdefault(name, value)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # What a terminal cannot show is no reason to stop.
            stream.reconfigure(errors="backslashreplace")
    code: object = 0
    try:
        try:
            app()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at its end, and complain in its own way.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            say_error(f"standard output: {error.strerror}")
        code = code or EXIT_ERROR
    if code == EXIT_INTERRUPTED:
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)  # Python would wait for threads that fit models
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
