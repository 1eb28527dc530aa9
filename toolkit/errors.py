"""The toolkit's errors: each says what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel


class ToolkitError(Exception):
    """A mistake of the user or a fault of an input; the commands print it without a traceback.

    Parameters
    ----------
    what
        What was wrong, in one sentence.
    where
        File (and line or field), if there is one.
    cure
        How to fix it.
    """

    def __init__(
        self, what: str, *, where: str | Path | None = None, cure: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = None if where is None else str(where)
        self.cure = cure

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.cure})" if self.cure else text


class LogError(ToolkitError):
    """A log could not be read at all."""


class DatasetError(ToolkitError):
    """A dataset is missing or has another schema version, or a request does not fit it."""


class RecipeError(ToolkitError):
    """A training recipe or a replay scenario does not fit its model."""


class ModelError(ToolkitError):
    """A trained model is absent, damaged, or made for other features."""


class LeakError(ToolkitError):
    """A model was trained on a task that it is judged on (honesty rule 4)."""


class SearchError(ToolkitError):
    """A strategy or a space was used against its contract."""


class LiveError(ToolkitError):
    """The device phase could not start or continue."""


class UnknownNameError(ToolkitError):
    """No plug-in or file of the toolkit has this name."""


def first_line(error: BaseException) -> str:
    """First line of an error's message (or its type), at most 300 characters."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a cure that names the nearest known names, or lists all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    return "known: " + ", ".join(names) if names else "none are known"


_WORDS = {
    "Value error, ": "",
    "Input should be ": "must be ",
    "Field required": "is missing",
    "Extra inputs are not permitted": "there is no such name",
}


def plain_words(error: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors in plain words, with the value if it is short."""
    said = error["msg"]
    for theirs, ours in _WORDS.items():
        if said.startswith(theirs):
            said = ours + said.removeprefix(theirs)
    value = error.get("input")
    named = said.startswith("must ") and isinstance(value, (str, int, float))
    return f"{said}, not {value!r}" if named and len(repr(value)) < 40 else said


def nearest(model: type[BaseModel], place: Sequence[int | str]) -> str:
    """Return a cure for a misspelt field, such as ``a.0.nmae``: the known names nearest to it."""
    known = {name for each in _at(model, place[:-1]) for name in _names(each)}
    return did_you_mean(str(place[-1]), known)


def _at(model: type[BaseModel], path: Sequence[int | str]) -> list[type[BaseModel]]:
    """Models at a path inside another model."""
    found = [model]
    for part in path:
        if isinstance(part, str):
            fields = [
                field
                for each in found
                for name, field in each.model_fields.items()
                if part in (name, field.alias)
            ]
            found = [inner for field in fields for inner in _models(field.annotation)] or found
    return found


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
