"""The reference page of the analysis, written from the docstrings of its result."""

from __future__ import annotations

import dataclasses
import inspect
import re

from toolkit.datasets.analysis import result

_KEYS = {
    "Analysis": "of the whole dataset, at the top of `toolkit describe --json`",
    "TaskAnalysis": "of one task, in each entry of `tasks`",
    "Convergence": "`tasks[].convergence`",
    "Backtest": "`backtest`",
    "StateTime": "`failures[]`; the report has the state `ok` as well",
    "Noise": "`noise` and `tasks[].noise`",
    "Spread": "`noise.within`, `noise.between`",
    "KnobEffect": "`tasks[].knobs[]`",
    "SketchKnob": "`knobs[]`",
    "Tuners": "`tuners`",
    "Tuner": "`tuners.tuners[]`",
    "Reached": "`tuners.tuners[].reached[]`",
}


def analysis_page() -> str:
    """Markdown: one section a part of the result, with its definition and its fields."""
    lines = [
        "# Analysis",
        "",
        "What `toolkit describe` and the report say of a log, and how each figure is defined.",
        "",
        _plain(inspect.cleandoc(result.__doc__ or "").partition("\n\n")[2]),
        "",
    ]
    for name, where in _KEYS.items():
        part = getattr(result, name)
        text, _, fields = inspect.cleandoc(part.__doc__).partition("Attributes\n----------\n")
        lines += [f"## {name}", "", f"Where: {where}.", "", _plain(text.strip()), ""]
        lines += _fields(fields)
        named = re.findall(r"^(\w[\w, ]*)$", fields, flags=re.M)
        told = {field for line in named for field in line.split(", ")}
        rest = [f"`{f.name}`" for f in dataclasses.fields(part) if f.name not in told]
        if rest:
            lines += [f"{'Further fields' if told else 'Fields'}: {', '.join(rest)}.", ""]
    return "\n".join(lines)


def _fields(text: str) -> list[str]:
    """Turn a numpydoc list of attributes into a Markdown list."""
    entries: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            entries.append((line, []))
        elif line.strip():
            entries[-1][1].append(line.strip())
    lines = [
        f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {_plain(' '.join(words))}"
        for names, words in entries
    ]
    return [*lines, ""] if lines else []


def _plain(text: str) -> str:
    """Markdown from reStructuredText: code marks are all that these docstrings use."""
    return text.replace("``", "`")
