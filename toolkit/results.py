"""Results of commands: frozen, typed objects that are also the mappings that ``--json`` prints."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from toolkit import show


@dataclass(frozen=True, repr=False)
class Result(Mapping[str, Any]):
    """Base of results: ``result.name`` is typed, ``result["name"]`` and ``dict(result)`` are JSON.

    A subclass is a frozen dataclass whose fields are the keys of the JSON. A field that is ``None``
    and has ``None`` as its default is not among the keys. Names end in their unit (``_s``).
    """

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys():
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def _keys(self) -> list[str]:
        return [
            field.name
            for field in fields(self)
            if field.default is not None or getattr(self, field.name) is not None
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts, lists, numbers and texts, with the keys of ``--json``."""
        return {key: plain(self[key]) for key in self}

    def __repr__(self) -> str:
        lines = (f"  {key}: {_brief(key, self[key])}" for key in self)
        return "\n".join([type(self).__name__, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(key)}</th><td>{html.escape(_brief(key, self[key]))}</td></tr>"
            for key in self
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def plain(value: Any) -> Any:
    """Return a value with all nested results as dicts and all tuples as lists."""
    if isinstance(value, Result):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def _brief(key: str, value: Any) -> str:
    """One short line for display: a number with its unit, a long value as its size."""
    if isinstance(value, (Mapping, list, tuple)) and len(value) > 4:
        return f"{len(value)} {'entries' if isinstance(value, Mapping) else 'rows'}"
    if isinstance(value, float):
        if key.endswith(("_s", "seconds")):
            return show.seconds(value)
        return show.percent(value) if key.endswith("share") else show.number(value)
    return show.cut(str(value), 100)
