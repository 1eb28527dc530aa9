"""TOML files that users write, checked against a pydantic model before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.errors import RecipeError, nearest, plain_words

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Settings(BaseModel):
    """A table of a TOML file: unknown names and values of another TOML type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


SettingsT = TypeVar("SettingsT", bound=BaseModel)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raise ``RecipeError`` if it is missing or not valid TOML."""
    if not path.is_file():
        raise RecipeError("there is no such file", where=path)
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(error.strerror or "cannot be read", where=path) from None
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"not valid TOML: {error}", where=path) from None
    field = _beyond(content)
    if field is not None:
        raise RecipeError(f"{field}: an integer has more than 64 bits", where=path)
    return content


def _beyond(value: Any, field: str = "it") -> str | None:
    """Return the field of an integer beyond 64 bits: TOML has none, but Python reads it."""
    if isinstance(value, dict):
        found = (_beyond(inner, name) for name, inner in value.items())
    elif isinstance(value, list):
        found = (_beyond(inner, field) for inner in value)
    else:
        wide = isinstance(value, int) and not -(2**63) <= value < 2**63
        return field if wide else None
    return next((name for name in found if name is not None), None)


def checked(
    model: type[SettingsT],
    content: dict[str, Any],
    *,
    where: str | Path | None = None,
    cure: str | None = None,
) -> SettingsT:
    """Check a file's content against a model; raise ``RecipeError`` naming the first wrong field.

    ``cure`` is used unless the error is an unknown name.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # Unknown names first: a misspelt name explains a missing one.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            cure = nearest(model, first["loc"])
        said = plain_words(first)
        raise RecipeError(f"{field}: {said}" if field else said, where=where, cure=cure) from None
