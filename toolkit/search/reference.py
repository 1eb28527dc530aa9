"""The reference pages of strategies and schedulers, written from their own option models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from toolkit.search import STRATEGIES
from toolkit.search.schedulers import SCHEDULERS
from toolkit.search.strategy import StrategyOptions

INTRODUCTION = """# Strategies

A strategy proposes candidates and is told their measurements. The same code searches a record
(`toolkit simulate`) and a device (`toolkit validate`). Options are given in a scenario:

```toml
[[strategy]]
name = "annealing"
label = "annealing, bolder"
batch_size = 16
options = { epsilon = 0.1, model = { loss = "squared" } }
```

The column *needs* says what a strategy cannot do without: a finite space, a throughput model of
other tasks (`toolkit train throughput`), or a mutation model (`toolkit train mutation`).

Your own strategy is one class and one line in the entry point group `tvm_tuning_toolkit.strategy`
([how](../how-to/plugins.md)). A [task scheduler](schedulers.md) chooses which task of a network is
searched next.

"""

SCHEDULERS_INTRODUCTION = """# Task schedulers

They choose which task of a network gets the next round of measurements. Every task gets a first
one.
"""


def strategy_pages() -> dict[str, str]:
    """Text of the overview and of a page each, by path."""
    plugins = {name: STRATEGIES.get(name) for name in STRATEGIES.names()}
    lines = ["| strategy | what it does | needs |", "|---|---|---|"]
    for name, plugin in plugins.items():
        link = f"[`{name}`](strategies/{name}.md)"
        lines.append(f"| {link} | {_first_line(plugin)} | {_needs(plugin)} |")
    schedulers = {name: SCHEDULERS.get(name) for name in SCHEDULERS.names()}
    return {
        "strategies.md": INTRODUCTION + "\n".join(lines) + "\n",
        "schedulers.md": SCHEDULERS_INTRODUCTION
        + "".join(_section(f"\n## {name}", plugin) for name, plugin in schedulers.items()),
        **{
            f"strategies/{name}.md": _section(f"# {name}", plugin)
            for name, plugin in plugins.items()
        },
    }


def _first_line(plugin: Any) -> str:
    return str(plugin.__doc__).strip().splitlines()[0].rstrip(".")


def _needs(plugin: Any) -> str:
    found = [
        text
        for needed, text in (
            (plugin.needs_finite, "a finite space"),
            (plugin.needs_scorer, "a throughput model"),
            (plugin.needs_direction_scorer, "a mutation model"),
        )
        if needed
    ]
    return ", ".join(found)


def _section(heading: str, plugin: Any) -> str:
    paragraphs = [
        " ".join(line.strip() for line in block.splitlines())
        for block in str(plugin.__doc__).strip().split("\n\n")
    ]
    text = f"{heading}\n\n" + "\n\n".join(paragraphs).replace("``", "`")
    text += f"\n\nSource: {plugin.source}.\n"
    rows = _rows(plugin.Options)
    if rows:
        table = ["| option | type | default | meaning |", "|---|---|---|---|", *rows]
        text += "\n" + "\n".join(table) + "\n"
    return text


def _rows(model: type[BaseModel], prefix: str = "") -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, StrategyOptions):
            default = field.get_default(call_default_factory=True)
            rows += _nested_rows(kind, default, f"{prefix}{name}.")
        elif isinstance(parts := field.get_default(call_default_factory=True), tuple) and parts:
            rows.append(f"| `{prefix}{name}` | list of parts | below | {field.description or ''} |")
            for i, part in enumerate(parts):
                rows += _nested_rows(type(part), part, f"{prefix}{name}[{i}].")
        else:
            rows.append(
                _row(f"{prefix}{name}", field, field.get_default(call_default_factory=True))
            )
    return rows


def _nested_rows(model: type[BaseModel], default: Any, prefix: str) -> list[str]:
    """Options of a part, with the defaults that its strategy gives it."""
    return [
        _row(f"{prefix}{name}", field, getattr(default, name))
        for name, field in model.model_fields.items()
    ]


def _row(name: str, field: FieldInfo, default: Any) -> str:
    kind = getattr(field.annotation, "__name__", None)
    if kind is None or kind == "Literal":
        choices = getattr(field.annotation, "__args__", ())
        kind = " or ".join(f"`{choice}`" for choice in choices)
    shown = f"`{default}`" if not isinstance(default, dict) or default else "`{}`"
    return f"| `{name}` | {kind} | {shown} | {field.description or ''} |"
