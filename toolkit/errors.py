"""One tree of errors; each says what was wrong, where, and what would cure it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel


class ToolkitError(Exception):
    """A user's mistake or an input's fault, told without a traceback.

    Parameters
    ----------
    what
        What was wrong, in one sentence.
    where
        File (and line or field), where there is one.
    cure
        What would put it right.
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
    """A dataset is absent, of another schema version, or lacks what was asked for."""


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
    """A name that no registry knows."""


def first_line(error: BaseException) -> str:
    """What an error of a library says, on one line of 300 characters at most."""
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
    """Say one of pydantic's errors in plain words, with the value where it is short."""
    said = error["msg"]
    for theirs, ours in _WORDS.items():
        if said.startswith(theirs):
            said = ours + said.removeprefix(theirs)
    value = error.get("input")
    named = said.startswith("must ") and isinstance(value, (str, int, float))
    return f"{said}, not {value!r}" if named and len(repr(value)) < 40 else said


def nearest(model: type[BaseModel], place: Sequence[int | str]) -> str:
    """Return a cure that names what could stand in a misspelt place, such as ``a.0.nmae``."""
    known = {name for each in _at(model, place[:-1]) for name in _names(each)}
    return did_you_mean(str(place[-1]), known)


def _at(model: type[BaseModel], path: Sequence[int | str]) -> list[type[BaseModel]]:
    """Models that a place in another one holds."""
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
