"""A recipe as TOML: what ``load_recipe`` reads again as the same recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from toolkit.training.recipes.recipe import Recipe


def recipe_toml(recipe: Recipe, comment: str = "") -> str:
    """Write a recipe as TOML, fields at their default left out, after lines of comment."""
    content = recipe.model_dump(mode="json", exclude_defaults=True)
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    models = content.pop("models")
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    lines += [f"{key} = {_value(v)}" for key, v in content.items() if key not in tables]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *_pairs(table)]
    for model in models:
        lines += ["", "[[models]]", *_pairs(model)]
    return "\n".join(lines) + "\n"


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    plain = key.replace("_", "").replace("-", "")
    return key if plain.isascii() and plain.isalnum() else orjson.dumps(key).decode()


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return orjson.dumps(str(value)).decode()
