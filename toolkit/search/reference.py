"""The reference pages of strategies and schedulers, written from their own option models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from toolkit.search import STRATEGIES
from toolkit.search.schedulers import SCHEDULERS
from toolkit.search.strategy import StrategyOptions

INTRODUCTION = """# Strategies

A strategy proposes candidates and receives their measurements. The same code runs on recorded
measurements (`toolkit simulate`) and on a device (`toolkit validate`). Options are given in a
scenario:

```toml
[[strategy]]
name = "annealing"
label = "annealing, bolder"
batch_size = 16
options = { epsilon = 0.1, model = { loss = "squared" } }
```

The column *needs* says what a strategy requires: a finite space, a throughput model of
other tasks (`toolkit train throughput`), or a mutation model (`toolkit train mutation`).

Your own strategy is one class and one line in the entry point group `tvm_tuning_toolkit.strategy`
([how](../how-to/plugins.md)). A [task scheduler](schedulers.md) chooses which task of a network is
searched next.

"""

SCHEDULERS_INTRODUCTION = """# Task schedulers

A scheduler chooses which task of a network gets the next round of measurements. Every task gets a
first round.
"""


def strategy_pages() -> dict[str, str]:
    """Return the texts of the overview pages and of one page per strategy, by path."""
    plugins = {name: STRATEGIES.get(name) for name in STRATEGIES.names()}
    lines = ["| strategy | what it does | needs |", "|---|---|---|"]
    for name, plugin in plugins.items():
        first = str(plugin.__doc__).strip().splitlines()[0].rstrip(".")
        lines.append(f"| [`{name}`](strategies/{name}.md) | {first} | {_needs(plugin)} |")
    schedulers = [_section(f"\n## {name}", SCHEDULERS.get(name)) for name in SCHEDULERS.names()]
    pages = {f"strategies/{name}.md": _section(f"# {name}", of) for name, of in plugins.items()}
    return {
        "strategies.md": INTRODUCTION + "\n".join(lines) + "\n",
        "schedulers.md": SCHEDULERS_INTRODUCTION + "".join(schedulers),
        **pages,
    }


def _needs(plugin: Any) -> str:
    found = {
        "a finite space": plugin.needs_finite,
        "a throughput model": plugin.needs_scorer,
        "a mutation model": plugin.needs_direction_scorer,
    }
    return ", ".join(text for text, needed in found.items() if needed)


def _section(heading: str, plugin: Any) -> str:
    blocks = str(plugin.__doc__).strip().split("\n\n")
    text = "\n\n".join(" ".join(block.split()) for block in blocks).replace("``", "`")
    rows = list(_rows(plugin.Options))
    if rows:
        rows = ["", "| option | type | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join([f"{heading}\n\n{text}\n\nSource: {plugin.source}.", *rows, ""])


def _rows(
    model: type[BaseModel], prefix: str = "", given: BaseModel | None = None
) -> Iterator[str]:
    """One row per option; nested options have the defaults that their strategy gives them."""
    for key, field in model.model_fields.items():
        name, kind = f"{prefix}{key}", field.annotation
        default = getattr(given, key, field.get_default(call_default_factory=True))
        if isinstance(default, StrategyOptions):
            yield from _rows(type(default), f"{name}.", default)
        elif isinstance(default, tuple) and default:
            yield f"| `{name}` | list of parts | below | {field.description or ''} |"
            for i, part in enumerate(default):
                yield from _rows(type(part), f"{name}[{i}].", part)
        else:
            text = getattr(kind, "__name__", "Literal")
            if text == "Literal":
                text = " or ".join(map(_choice, getattr(kind, "__args__", ())))
            yield f"| `{name}` | {text} | `{default}` | {field.description or ''} |"


def _choice(one: Any) -> str:
    """A value that an option may have, or the name of a type."""
    if isinstance(one, type):
        return "none" if one is type(None) else one.__name__
    return f"`{one}`"
