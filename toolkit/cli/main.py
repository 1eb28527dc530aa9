"""The command ``toolkit``: a thin skin; each command parses, calls one function, prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper

import typer

from toolkit.children import CALM
from toolkit.cli.commands import train
from toolkit.cli.commands.compile import compile
from toolkit.cli.commands.demo import demo
from toolkit.cli.commands.describe import describe
from toolkit.cli.commands.evaluate import evaluate
from toolkit.cli.commands.export import export, query
from toolkit.cli.commands.features import features
from toolkit.cli.commands.ingest import check, ingest, merge
from toolkit.cli.commands.live import collect, validate
from toolkit.cli.commands.predict import predict
from toolkit.cli.commands.race import race
from toolkit.cli.commands.report import report
from toolkit.cli.commands.simulate import simulate
from toolkit.cli.commands.tune import lookup, tune
from toolkit.cli.common import EXIT_ERROR, EXIT_INTERRUPTED, say_error, with_exit_codes

COMMANDS: tuple[Callable[..., None], ...] = (
    *(ingest, merge, describe, check, export, query, features, evaluate, predict, simulate),
    *(lookup, collect, validate, tune, compile, race, report, demo),
)
KINDS: tuple[Callable[..., None], ...] = (train.throughput, train.mutation, train.validity)

app = typer.Typer(
    name="toolkit",
    help="Turn tensor-program tuning logs into datasets, predictors, replays and winners.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
training = typer.Typer(help="Train a model on the dataset's tasks.", no_args_is_help=True)
for function in COMMANDS:
    app.command()(with_exit_codes(function))
for kind in KINDS:
    training.command()(with_exit_codes(kind))
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
