"""The command ``toolkit``: a thin skin; each command parses, calls one function, prints."""

from __future__ import annotations

import typer

from toolkit.cli import demo, features, ingest, live, predict, race, report, simulate, train, tune

app = typer.Typer(
    name="toolkit",
    help="Turn tensor-program tuning logs into datasets, predictors, replays and winners.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for group in (ingest, features, train, predict, simulate, live, tune, race, report, demo):
    group.register(app)


def main() -> None:
    """Run the command line."""
    app()
