"""``toolkit collect`` and ``toolkit validate``."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
